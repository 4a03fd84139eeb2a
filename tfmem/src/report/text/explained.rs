//! `tfmem explain`: causes as a list, or one in full.

use super::page::{Page, Style, Tone};
use crate::report::explained::Explained;

/// `full`: everything of each; else a sentence.
#[must_use]
pub fn listed(all: &[&Explained], full: bool, style: Style) -> String {
    let mut page = Page::new(style);
    for explained in all {
        if full {
            page.headline(explained.name);
            page.paragraph("means", Tone::Bold, explained.means);
            page.paragraph("proved by", Tone::Bold, explained.proved_by);
            page.paragraph("gives back", Tone::Bold, explained.gives_back);
            page.paragraph("is not", Tone::Bold, explained.mistaken_for);
        } else {
            page.beside(&[(explained.name, 24, Tone::Bold)], explained.means);
        }
    }
    page.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::explained;

    #[test]
    fn a_list_names_all_and_one_tells_all() {
        let all: Vec<&Explained> = explained::ALL.iter().collect();
        let text = listed(&all, false, Style::default());
        assert!(all.iter().all(|explained| text.contains(explained.name)));
        let one: Vec<&Explained> = explained::by_name("pool_reserve").into_iter().collect();
        let text = listed(&one, true, Style::default());
        assert!(text.starts_with("pool_reserve\n") && text.contains("gives back") && text.contains("is not"), "{text}");
    }
}
