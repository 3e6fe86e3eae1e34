fn main() {
    let v: Vec<usize> = std::env::args().skip(2).map(|a| a.parse().unwrap()).collect();
    let r = if std::env::args().nth(1).unwrap() == "a" {
    let bounds = protocol::admission::Bounds { events: v[0], tries: v[1], permits: v[2], copies: v[3] as u8, limits: if v[5]==1 {&[1]} else if v[5]==10 {&[1,0]} else if v[5]==21 {&[2,1]} else if v[5]==12 {&[1,2]} else {&[2,1,0]}, changes: v[4] as u8 };
    protocol::check::check(protocol::admission::Admission::new(bounds), 2)
    } else {
    let bounds = protocol::schedule::Bounds { schedulers: v[0], left: protocol::schedule::Left { arrivals: v[1] as u8, retries: v[2] as u8, changes: v[3] as u8, losses: v[4] as u8 } };
    protocol::check::check(protocol::schedule::WakeProtocol::new(bounds), 2)
    };
    println!("{} {}\n{r}", r.unique_states, r.depth);
}
