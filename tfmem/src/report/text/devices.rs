//! GPUs at a boundary, one line each.

use super::page::{Page, Tone};
use crate::report::model::{Device, Side};
use crate::report::units::{bytes, bytes_or, plain};

pub fn render(page: &mut Page, side: &Side) {
    for device in &side.devices {
        page.line(&format!("    {}", line(device)), Tone::Dim);
        for pool in device.stream_pools.iter().filter(|pool| pool.in_use_bytes > 0 || pool.kept_at_most_bytes > 0) {
            let text = format!(
                "      stream-ordered: {} in use, at most {} more kept by the driver's pool",
                bytes(pool.in_use_bytes),
                bytes(pool.kept_at_most_bytes)
            );
            page.line(&text, Tone::Dim);
        }
    }
}

fn line(device: &Device) -> String {
    let name = device.index.map_or_else(|| "a GPU that is not known".to_owned(), |index| format!("GPU {index}"));
    let bus = device.bus_id.as_ref().map_or_else(String::new, |bus| format!(" ({})", plain(bus, 20)));
    let bands = &device.bands;
    let nvml = device.nvml_bytes.map_or_else(|| "NVML not asked".to_owned(), |n| format!("NVML says {}", bytes(n)));
    format!(
        "{name}{bus}: pools {} in use, {} free; outside pools {}; {nvml}",
        bytes_or(bands.pool_in_use, "?"),
        bytes_or(bands.pool_free, "?"),
        bytes_or(bands.outside_pool, "?")
    )
}
