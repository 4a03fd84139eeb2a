//! How large a recording is.

use std::time::Instant;

use super::{generate, read, record};

#[test]
fn a_million_events_take_at_most_eight_bytes_each() {
    let events = generate::training(1_000_000);
    let begun = Instant::now();
    let bytes = record(&events, usize::MAX);
    let encoded = begun.elapsed();
    let begun = Instant::now();
    let (again, _) = read(&bytes);
    let each = bytes.len() as f64 / events.len() as f64;
    println!("{each:.2} bytes an event, written in {encoded:?}, read in {:?}", begun.elapsed());
    assert_eq!(again.len(), events.len());
    assert!(each <= 8.0, "{each} bytes");
}
