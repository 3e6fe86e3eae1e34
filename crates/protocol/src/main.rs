fn main() {
    let v: Vec<usize> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let bounds = protocol::admission::Bounds { events: v[0], tries: v[1], permits: v[2], copies: v[3] as u8, limits: &[2,1,0], changes: v[4] as u8 };
    let t = std::time::SystemTime::UNIX_EPOCH;
    let _ = t;
    let r = protocol::check::check(protocol::admission::Admission::new(bounds), 2);
    println!("{} {}\n{r}", r.unique_states, r.depth);
}
