//! The table of hosts: each in the form that somebody writes, and what it is.

use std::collections::BTreeMap;
use std::net::IpAddr;

use adapters::http::Policy;
use adapters::http::address::{AddressKind, kind};
use url::{Host, Url};

const TABLE: &str = include_str!("addresses.txt");

fn cases() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = TABLE
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_once(' ').unwrap())
}

/// What the table calls it.
fn judged(url: &Result<Url, url::ParseError>) -> &'static str {
    match url.as_ref().ok().and_then(Url::host) {
        None => "no-url",
        Some(Host::Domain(_)) => "name",
        Some(Host::Ipv4(address)) => kind(IpAddr::from(address)).as_str(),
        Some(Host::Ipv6(address)) => kind(IpAddr::from(address)).as_str(),
    }
}

#[test]
fn every_host_is_what_the_table_says() {
    let mut wrong = Vec::new();
    let mut cases_of = BTreeMap::<&str, usize>::new();
    for (host, expected) in cases() {
        let url = Url::parse(&format!("https://{host}/hook"));
        let judged = judged(&url);
        if judged != expected {
            wrong.push(format!("{host} is {judged}, not {expected}"));
        }
        // And what it is decides whether anything may be sent there.
        let open = url.is_ok_and(|url| Policy::default().vet_url(&url).is_ok());
        let local = host.starts_with("localhost");
        if open != (["public", "name"].contains(&expected) && !local) {
            wrong.push(format!("{host} is {expected}, and open is {open}"));
        }
        *cases_of.entry(expected).or_default() += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(cases_of.values().sum::<usize>() >= 500, "{cases_of:?}");
    let kinds = [
        AddressKind::Public,
        AddressKind::Metadata,
        AddressKind::Loopback,
        AddressKind::Private,
        AddressKind::Shared,
        AddressKind::LinkLocal,
        AddressKind::Unspecified,
        AddressKind::Multicast,
        AddressKind::Translated,
        AddressKind::Documentation,
        AddressKind::Protocol,
        AddressKind::Reserved,
    ];
    for kind in kinds {
        assert!(
            cases_of.get(kind.as_str()) > Some(&2),
            "{kind}: {cases_of:?}"
        );
    }
}

#[test]
fn ports_of_databases_and_shells_are_refused() {
    let open = |policy: &Policy, url: &str| policy.vet_url(&Url::parse(url).unwrap()).is_ok();
    let policy = Policy::default();
    for port in [
        22, 25, 53, 2375, 3306, 5432, 5672, 6379, 9200, 11211, 27017, 65535,
    ] {
        for host in ["1.1.1.1", "[2606:4700::1111]", "example.com"] {
            assert!(
                !open(&policy, &format!("https://{host}:{port}/")),
                "{host}:{port}"
            );
        }
    }
    for url in [
        "https://example.com",
        "http://example.com",
        "https://1.1.1.1:8443",
    ] {
        assert!(open(&policy, url), "{url}");
    }
    let one = Policy {
        networks: vec!["10.0.0.0/8:9000".parse().unwrap()],
        ..Policy::default()
    };
    // A port that is open in one network is not open in all.
    for (url, allowed) in [
        ("https://10.1.1.1:9000", true),
        ("https://10.1.1.1", false),
        ("https://1.1.1.1:9000", false),
        ("https://127.0.0.1:9000", false),
        // A name may turn out to be in that network.
        ("https://example.com:9000", true),
    ] {
        assert_eq!(open(&one, url), allowed, "{url}");
    }
}

#[test]
fn a_nat64_prefix_opens_only_what_is_open_behind_it() {
    let vet = |networks: &[&str], address: &str| {
        let policy = Policy {
            networks: networks.iter().map(|text| text.parse().unwrap()).collect(),
            ..Policy::default()
        };
        policy.vet(address.parse().unwrap(), 443).is_ok()
    };
    assert!(!vet(&[], "64:ff9b::1.1.1.1"));
    assert!(vet(&["64:ff9b::/96"], "64:ff9b::1.1.1.1"));
    assert!(!vet(&["64:ff9b::/96"], "64:ff9b::10.0.0.1"));
    assert!(!vet(&["64:ff9b::/96"], "64:ff9b::169.254.169.254"));
    assert!(vet(&["64:ff9b::/96", "10.0.0.0/8"], "64:ff9b::10.0.0.1"));
    // Where a local one leads to nobody knows.
    assert!(!vet(&["64:ff9b:1::/48"], "64:ff9b:1::1.1.1.1"));
}

/// The forms of RFC 6052, section 2.4, each of 10.1.2.3 and 1.2.3.4 in their places.
#[test]
fn what_stands_behind_a_named_prefix_is_judged_by_its_own_address() {
    for (prefix, inner, outer) in [
        ("2001:db8::/32", "2001:db8:a01:203::", "2001:db8:102:304::"),
        (
            "2001:db8:100::/40",
            "2001:db8:10a:102:3::",
            "2001:db8:101:203:4::",
        ),
        (
            "2001:db8:122::/48",
            "2001:db8:122:a01:2:300::",
            "2001:db8:122:102:3:400::",
        ),
        (
            "2001:db8:122:300::/56",
            "2001:db8:122:30a:1:203::",
            "2001:db8:122:301:2:304::",
        ),
        (
            "2a00:122:344::/64",
            "2a00:122:344:0:a:102:300:0",
            "2a00:122:344:0:1:203:400:0",
        ),
        (
            "64:ff9b:1::/96",
            "64:ff9b:1::10.1.2.3",
            "64:ff9b:1::1.2.3.4",
        ),
        ("64:ff9b::/96", "64:ff9b::10.1.2.3", "64:ff9b::1.2.3.4"),
    ] {
        let named = Policy {
            nat64: vec![prefix.parse().unwrap()],
            ..Policy::default()
        };
        let inside = Policy {
            networks: vec!["10.0.0.0/8".parse().unwrap()],
            ..named.clone()
        };
        let vet = |policy: &Policy, address: &str| policy.vet(address.parse().unwrap(), 443);
        let vetted = vet(&named, outer).unwrap();
        assert_eq!(vetted.address().ip(), outer.parse::<IpAddr>().unwrap());
        assert!(vet(&named, inner).is_err(), "{inner}");
        assert!(vet(&inside, inner).is_ok(), "{inner}");
        assert!(named.vet(outer.parse().unwrap(), 22).is_err(), "{outer}");
    }
}

/// Nobody knows which of two gateways has it, so both have to lead where it is open.
#[test]
fn what_stands_behind_two_prefixes_is_judged_by_both() {
    let both = ["64:ff9b:1::/48", "64:ff9b:1::/96"];
    for order in [both, [both[1], both[0]]] {
        let policy = Policy {
            nat64: order.map(|prefix| prefix.parse().unwrap()).to_vec(),
            networks: vec!["0.0.0.0/8".parse().unwrap()],
            ..Policy::default()
        };
        let vet = |address: &str| policy.vet(address.parse().unwrap(), 443).is_ok();
        // 0.0.0.0 by the one, and by the other 10.0.0.1 or 1.1.1.1.
        assert!(!vet("64:ff9b:1::a00:1"), "{order:?}");
        assert!(vet("64:ff9b:1::101:101"), "{order:?}");
        // By the one alone; and its ninth octet is not zero.
        assert!(vet("64:ff9b:1:101:1:100::"), "{order:?}");
        assert!(!vet("64:ff9b:1:101:101:100::"), "{order:?}");
    }
}
