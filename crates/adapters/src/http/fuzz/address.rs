//! Target `address`: an address in any of the forms that it can be written in.
//!
//! The first line of the input is the host of a URL. If it is an address, all
//! its other forms have to be judged alike, and none may be connected to that
//! an independent description of the address space does not call public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use fuzzing::{Verdict, ensure};
use url::{Host, Url};

use super::super::address::{AddressKind, canonical, kind};
use super::super::policy::Policy;

#[test]
fn addresses() -> fuzzing::Outcome {
    fuzzing::run(super::CRATE, "address", 20_000, judge)
}

fn judge(input: &[u8]) -> Verdict {
    let Ok(text) = std::str::from_utf8(input) else {
        return Ok("not UTF-8".to_owned());
    };
    let host = text.lines().next().unwrap_or_default();
    let Ok(url) = Url::parse(&format!("https://{host}/")) else {
        return Ok("no URL".to_owned());
    };
    let address = match url.host() {
        Some(Host::Ipv4(address)) => IpAddr::from(address),
        Some(Host::Ipv6(address)) => IpAddr::from(address),
        _ => return Ok("a name".to_owned()),
    };
    let kind = kind(address);
    alike(address, kind)?;
    let by_url = Policy::default().vet_url(&url);
    let by_address = Policy::default().vet(address, url.port_or_known_default().unwrap_or(0));
    ensure!(
        by_url.is_ok() == by_address.is_ok(),
        "URL and address differ"
    );
    if let Ok(vetted) = by_address {
        let ip = vetted.address().ip();
        ensure!(ip == canonical(address), "another address was vetted");
        ensure!(plainly_public(ip), "{ip} is not public");
    }
    let family = if canonical(address).is_ipv4() { 4 } else { 6 };
    Ok(format!("IPv{family} {kind} written as {}", form(host)))
}

/// Every form of an address is of the same kind.
fn alike(address: IpAddr, kind: AddressKind) -> fuzzing::Result<()> {
    let canonical = canonical(address);
    ensure!(super::super::address::kind(canonical) == kind);
    let IpAddr::V4(v4) = canonical else {
        return Ok(());
    };
    ensure!(super::super::address::kind(v4.to_ipv6_mapped().into()) == kind);
    let number = u32::from(v4);
    let [a, b, c, d] = v4.octets();
    for form in [
        format!("{number}"),
        format!("{number:#x}"),
        format!("0{number:o}"),
        format!("{a}.{}", number & 0xff_ffff),
        format!("{a:#x}.{b}.{}", number & 0xffff),
        format!("0{a:o}.0{b:o}.0{c:o}.0{d:o}."),
        format!("[::ffff:{v4}]"),
    ] {
        let url = Url::parse(&format!("https://{form}/"))?;
        let read = match url.host() {
            Some(Host::Ipv4(address)) => IpAddr::from(address),
            Some(Host::Ipv6(address)) => IpAddr::from(address),
            other => fuzzing::bail!("{form} is read as {other:?}"),
        };
        ensure!(
            super::super::address::canonical(read) == canonical,
            "{form} is elsewhere"
        );
    }
    // Behind a translator it is never public.
    let [.., high, low] = v4.to_ipv6_mapped().segments();
    for translated in [
        Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low),
        Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, high, low),
        Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
        Ipv6Addr::new(0x2001, 0, high, low, 0, 0, !high, !low),
    ] {
        let kind = super::super::address::kind(translated.into());
        ensure!(kind == AddressKind::Translated, "{translated} is {kind}");
    }
    Ok(())
}

/// By the standard library's words and by hand, without the table.
fn plainly_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !hidden(v4),
        IpAddr::V6(v6) => {
            let [first, second, ..] = v6.segments();
            let special = match first {
                0x2001 => second < 0x0200 || second == 0x0db8,
                0x3fff => second < 0x1000,
                _ => first == 0x2002,
            };
            (0x2000..0x4000).contains(&first) && !special
        }
    }
}

fn hidden(v4: Ipv4Addr) -> bool {
    let [a, b, c, _] = v4.octets();
    v4.is_private()
        || v4.is_loopback()
        || v4.is_link_local()
        || v4.is_multicast()
        || v4.is_broadcast()
        || v4.is_documentation()
        || a == 0
        || a >= 224
        || (a == 100 && (64..128).contains(&b))
        || (a == 198 && (18..20).contains(&b))
        || (a, b, c) == (192, 0, 0)
        || (a, b, c) == (192, 88, 99)
        || v4 == Ipv4Addr::new(168, 63, 129, 16)
}

fn form(host: &str) -> &'static str {
    if host.starts_with('[') {
        "IPv6"
    } else if host.contains("0x") || host.contains("0X") {
        "hexadecimal"
    } else if host.split('.').count() < 4 {
        "short"
    } else {
        "dotted"
    }
}
