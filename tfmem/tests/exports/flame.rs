//! Flame graphs as text: which box says what, in which colour.

use std::fmt::Write as _;

use tfmem::{
    export::flame::{write, write_difference},
    profile::{Profile, Weight, Which, difference},
};

use super::{golden, profile, sums};

pub fn svg() -> String {
    let mut out = Vec::new();
    write(&profile(Which::End), Weight::Bytes, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Each box on a line: width in bytes, colour, title; before them the picture's own titles.
fn boxes(svg: &str) -> String {
    let part = |text: &str, from: &str, to: &str| {
        let start = text.find(from).unwrap_or_else(|| panic!("no {from:?} in {text:?}")) + from.len();
        text[start..start + text[start..].find(to).unwrap()].to_owned()
    };
    let mut out = String::new();
    for id in ["title", "subtitle"] {
        writeln!(out, "{}", part(svg, &format!("<text id=\"{id}\""), "</text>").rsplit('>').next().unwrap()).unwrap();
    }
    for group in svg.split("<g>").skip(1) {
        let (width, fill) = (part(group, "fg:w=\"", "\""), part(group, "fill=\"", "\""));
        writeln!(out, "{width} {fill} {}", part(group, "<title>", "</title>")).unwrap();
    }
    out
}

#[test]
fn the_picture_is_as_it_was_and_adds_up() {
    let svg = svg();
    assert!(svg.contains(&format!("total_samples=\"{}\"", sums().0)));
    golden("end.flame.txt", &boxes(&svg));
}

#[test]
fn names_are_no_markup() {
    let svg = svg();
    assert!(svg.contains("evil&lt;/text&gt;&lt;script&gt;"));
    assert_eq!(svg.matches("<script").count(), 1);
    let xml_has = |c: char| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}') || matches!(c, '\n' | '\t' | '\r');
    assert!(svg.chars().all(xml_has));
}

#[test]
fn the_difference_is_as_it_was() {
    let mut out = Vec::new();
    let difference = difference(&profile(Which::Last), &profile(Which::End), Weight::Bytes);
    write_difference(&difference, &mut out).unwrap();
    golden("difference.flame.txt", &boxes(&String::from_utf8(out).unwrap()));
}

#[test]
fn nothing_is_an_error_and_no_empty_picture() {
    let error = write(&Profile::default(), Weight::Bytes, Vec::new()).unwrap_err();
    assert!(error.to_string().contains("no survivors"), "{error}");
}
