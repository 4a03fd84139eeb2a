//! One measured figure, and how a list of them is shown.

use std::fmt::Write as _;

use serde_json::json;

/// What was measured round after round.
#[derive(Clone, Debug)]
pub struct Series {
    name: String,
    unit: &'static str,
    values: Vec<f64>,
}

#[derive(Clone, Copy, Debug)]
pub enum Goal {
    /// At most so many times what it is compared with
    Ratio(f64),
    /// Below this, in the figure's own unit
    Below(f64),
}

#[derive(Clone, Debug)]
pub struct Figure {
    name: String,
    unit: &'static str,
    /// Median of the rounds; `None`: not measured, the note says why.
    value: Option<f64>,
    range: Option<(f64, f64)>,
    /// What it is compared with, and how many times as much it is.
    against: Option<(String, f64)>,
    goal: Option<Goal>,
    note: Option<String>,
}

impl Series {
    pub fn new(name: impl Into<String>, unit: &'static str) -> Self {
        Self { name: name.into(), unit, values: Vec::new() }
    }

    pub fn of(name: impl Into<String>, unit: &'static str, values: Vec<f64>) -> Self {
        Self { name: name.into(), unit, values }
    }

    pub fn push(&mut self, value: f64) {
        self.values.push(value);
    }

    /// What each round of this one costs beyond the same round of another.
    pub fn beyond(&self, other: &Self, name: impl Into<String>) -> Self {
        let values = self.values.iter().zip(&other.values).map(|(own, other)| own - other).collect();
        Self::of(name, self.unit, values)
    }

    pub fn median(&self) -> Option<f64> {
        median(self.values.clone())
    }

    /// Each round's value so many times.
    pub fn scaled(&self, name: impl Into<String>, unit: &'static str, times: f64) -> Self {
        Self::of(name, unit, self.values.iter().map(|value| value * times).collect())
    }

    pub fn figure(&self) -> Figure {
        let least = self.values.iter().copied().min_by(f64::total_cmp);
        let most = self.values.iter().copied().max_by(f64::total_cmp);
        Figure {
            name: self.name.clone(),
            unit: self.unit,
            value: median(self.values.clone()),
            range: least.zip(most).filter(|_| self.values.len() > 1),
            against: None,
            goal: None,
            note: None,
        }
    }

    /// The median of the rounds' own ratios: what disturbs a whole round disturbs both sides.
    pub fn against(&self, other: &Self) -> Figure {
        let ratios = self.values.iter().zip(&other.values).map(|(own, other)| own / other).collect();
        let against = median(ratios).map(|ratio| (other.name.clone(), ratio));
        Figure { against, ..self.figure() }
    }
}

pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = values.get(middle).copied()?;
    if values.len() % 2 == 1 { Some(upper) } else { Some(f64::midpoint(values.get(middle - 1).copied()?, upper)) }
}

impl Goal {
    fn text(self, unit: &str) -> String {
        match self {
            Self::Ratio(most) => format!("≤ {most} ×"),
            Self::Below(limit) => format!("< {limit} {unit}"),
        }
    }
}

impl Figure {
    pub fn single(name: impl Into<String>, unit: &'static str, value: f64) -> Self {
        Series::of(name, unit, vec![value]).figure()
    }

    /// What could not be measured, and why.
    pub fn unknown(name: impl Into<String>, unit: &'static str, why: impl Into<String>) -> Self {
        Series::new(name, unit).figure().note(why)
    }

    pub const fn goal(mut self, goal: Goal) -> Self {
        self.goal = Some(goal);
        self
    }

    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = Some(note.into());
        self
    }

    /// Is the goal met? `None`: there is none, or nothing was measured.
    pub fn met(&self) -> Option<bool> {
        match self.goal? {
            Goal::Ratio(most) => Some(self.against.as_ref()?.1 <= most),
            Goal::Below(limit) => Some(self.value? < limit),
        }
    }

    pub fn json(&self) -> String {
        let (against, ratio) = self.against.as_ref().map_or((None, None), |(name, ratio)| (Some(name), Some(ratio)));
        json!({
            "name": self.name, "unit": self.unit, "median": self.value, "least": self.range.map(|(least, _)| least),
            "most": self.range.map(|(_, most)| most), "against": against, "ratio": ratio,
            "goal": self.goal.map(|goal| goal.text(self.unit)), "met": self.met(), "note": self.note
        })
        .to_string()
    }

    /// One line for each goal that was missed.
    pub fn missed(&self) -> Option<String> {
        let goal = self.goal.filter(|_| self.met() == Some(false))?;
        let found = match (goal, &self.against) {
            (Goal::Ratio(_), Some((name, ratio))) => format!("{ratio:.2} × {name}"),
            _ => format!("{} {}", number(self.value?), self.unit),
        };
        Some(format!("{}: {found}, the goal is {}", self.name, goal.text(self.unit)))
    }

    fn row(&self) -> String {
        let ratio = self.against.as_ref().map_or_else(String::new, |(name, ratio)| format!("{ratio:.2} × {name}"));
        let goal = self.goal.map_or_else(String::new, |goal| {
            let met = match self.met() {
                Some(true) => ", met",
                Some(false) => ", **missed**",
                None => "",
            };
            format!("{}{met}", goal.text(self.unit))
        });
        let value = self.value.map_or_else(|| "?".to_owned(), |value| format!("{} {}", number(value), self.unit));
        let range =
            self.range.map_or_else(String::new, |(least, most)| format!("{} – {}", number(least), number(most)));
        let note = self.note.as_ref().map_or_else(String::new, |note| format!(" ({note})"));
        format!("| {}{note} | {value} | {range} | {ratio} | {goal} |", self.name)
    }
}

fn number(value: f64) -> String {
    format!("{value:.*}", if value.abs() < 10.0 { 2 } else { 0 })
}

pub fn table(figures: &[Figure]) -> String {
    let mut out = String::from("| what | median | least – most | ratio | goal |\n|---|---|---|---|---|\n");
    for figure in figures {
        let _ = writeln!(out, "{}", figure.row());
    }
    out
}
