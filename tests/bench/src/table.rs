//! Figures as a Markdown table.

use std::time::Duration;

pub(crate) struct Table {
    lines: Vec<String>,
}

impl Table {
    pub(crate) fn new(columns: &[&str]) -> Self {
        let rule = "|---".repeat(columns.len()) + "|";
        Self { lines: vec![line(columns), rule] }
    }

    pub(crate) fn row(&mut self, cells: &[String]) {
        self.lines.push(line(cells));
    }

    pub(crate) fn text(&self) -> String {
        self.lines.join("\n")
    }
}

fn line(cells: &[impl AsRef<str>]) -> String {
    let cells: Vec<&str> = cells.iter().map(AsRef::as_ref).collect();
    format!("| {} |", cells.join(" | "))
}

/// The middle value; of an even number, the larger of the middle two.
pub(crate) fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

pub(crate) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

pub(crate) fn milliseconds(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}

pub(crate) fn mebibytes(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_rule_below_its_head() {
        let mut table = Table::new(&["a", "b"]);
        table.row(&["1".to_owned(), "2".to_owned()]);
        assert_eq!(table.text(), "| a | b |\n|---|---|\n| 1 | 2 |");
    }

    #[test]
    fn the_median_is_the_middle_one() {
        let times = [3, 1, 2].map(Duration::from_secs);
        assert_eq!(median(&times), Duration::from_secs(2));
        assert_eq!(median(&[]), Duration::ZERO);
    }

    #[test]
    fn figures_have_units() {
        assert_eq!(seconds(Duration::from_millis(91_640)), "91.6 s");
        assert_eq!(milliseconds(Duration::from_micros(1234)), "1.23 ms");
        assert_eq!(mebibytes(33_554_432.0), "32.0 MiB");
    }
}
