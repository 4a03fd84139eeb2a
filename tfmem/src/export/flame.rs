//! Flame graphs: interactive SVG, drawn by `inferno`. The op is on top, the outermost function at the bottom.

use std::io::{self, Write};

use inferno::flamegraph::{
    self, Options,
    color::{BackgroundColor, Color, PaletteMap},
};

use super::folded;
use crate::profile::{Difference, NO_STACK, Profile, SMALL_GROUPS, Style, Weight, label};
use crate::report::model::{Frame, FrameKind};

/// Pixels; the picture fits its window's width all the same.
const WIDTH: usize = 1400;

const BACKGROUND: Color = Color { r: 250, g: 250, b: 250 };
const OP: Color = Color { r: 233, g: 138, b: 62 };
const PYTHON: Color = Color { r: 110, g: 178, b: 112 };
const NATIVE: Color = Color { r: 143, g: 174, b: 214 };
const INLINED: Color = Color { r: 186, g: 204, b: 228 };
const KERNEL: Color = Color { r: 205, g: 130, b: 164 };
/// What no name is known of.
const UNKNOWN: Color = Color { r: 190, g: 190, b: 190 };

/// # Errors
/// What the writer says; when there is nothing to draw.
pub fn write(profile: &Profile, weight: Weight, out: impl Write) -> io::Result<()> {
    nothing(profile.total(weight))?;
    let mut palette = PaletteMap::default();
    // The bottom, which stands for all.
    palette.insert("", UNKNOWN);
    for frame in profile.rows.iter().flat_map(|row| &row.frames) {
        palette.insert(label(frame, Style::Folded), colour(frame));
    }
    let subtitle = format!("{} · orange: op, green: Python, blue: native, pink: kernel", profile.summary());
    let mut options = options(&profile.title(), subtitle, weight);
    options.palette_map = Some(&mut palette);
    draw(&mut options, &folded::lines(profile, weight), out)
}

/// The difference of two: as wide as after, red where there is more than before, blue where there is less.
///
/// # Errors
/// What the writer says; when there is nothing to draw.
pub fn write_difference(difference: &Difference, out: impl Write) -> io::Result<()> {
    nothing(difference.changes.iter().fold(0, |sum: u64, change| sum.saturating_add(change.after)))?;
    let title = format!("Changes: {} → {}", difference.before, difference.after);
    let subtitle = format!("{} · red: more, blue: less", difference.summary());
    draw(&mut options(&title, subtitle, difference.weight), &folded::changes(difference), out)
}

fn nothing(total: u64) -> io::Result<()> {
    if total == 0 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "nothing is there to draw (no survivors, nothing alive)",
        ));
    }
    Ok(())
}

fn options(title: &str, subtitle: String, weight: Weight) -> Options<'static> {
    let mut options = Options::default();
    options.title = title.to_owned();
    options.subtitle = Some(subtitle);
    options.count_name = match weight {
        Weight::Bytes => "bytes",
        Weight::Count => "allocations",
    }
    .to_owned();
    options.name_type = "Frame:".to_owned();
    options.image_width = Some(WIDTH);
    // The lines are in order of their stacks, which is not that of the lines: a name may have a space.
    options.no_sort = true;
    options.deterministic = true;
    options.bgcolors = Some(BackgroundColor::Flat(BACKGROUND));
    options
}

fn draw(options: &mut Options<'_>, lines: &[String], out: impl Write) -> io::Result<()> {
    flamegraph::from_lines(options, lines.iter().map(String::as_str), out)
}

fn colour(frame: &Frame) -> Color {
    match frame.kind {
        _ if frame.unknown.is_some() => UNKNOWN,
        FrameKind::Native if frame.name == NO_STACK || frame.name == SMALL_GROUPS => UNKNOWN,
        FrameKind::Op => OP,
        FrameKind::Python => PYTHON,
        FrameKind::Native if frame.inlined => INLINED,
        FrameKind::Native => NATIVE,
        FrameKind::Kernel => KERNEL,
    }
}
