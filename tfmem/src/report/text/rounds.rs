//! What grows from round to round, and what came of predictions.

use super::page::{Page, Tone};
use crate::report::model::{Growth, Process};

/// Rounds of so many kinds, and predictions, on the page.
const SHOWN: usize = 3;

pub fn render(page: &mut Page, process: &Process) {
    let totals: Vec<&Growth> = process.growth.iter().filter(|growth| growth.place.is_none()).collect();
    for (i, growth) in totals.iter().take(SHOWN).enumerate() {
        if i == 0 {
            page.blank();
        }
        let (label, tone) = if growth.grows { ("GROWS", Tone::Bad) } else { ("STEADY", Tone::Good) };
        page.paragraph(label, tone, &growth.summary);
    }
    for (i, prediction) in process.predictions.iter().take(SHOWN).enumerate() {
        if i == 0 {
            page.blank();
        }
        let (label, tone) = if prediction.hit { ("came true", Tone::Good) } else { ("did not", Tone::Doubt) };
        page.paragraph(label, tone, &prediction.summary);
    }
}
