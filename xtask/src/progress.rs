//! Output to the terminal: one line per step with its time, messages, results and errors.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// Draws steps that run side by side; without a terminal only finished steps are printed.
pub(crate) struct Progress {
    bars: MultiProgress,
    terminal: bool,
}

/// A running step.
pub(crate) struct Step {
    name: String,
    bar: ProgressBar,
    bars: MultiProgress,
    terminal: bool,
    started: Instant,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { bars: MultiProgress::new(), terminal: console_is_terminal() }
    }

    pub(crate) fn step(&self, name: &str) -> Step {
        let bar = if self.terminal {
            let bar = self.bars.add(ProgressBar::new_spinner());
            if let Ok(style) =
                ProgressStyle::with_template("  {spinner} {prefix:<34} {elapsed:>5} {wide_msg}")
            {
                bar.set_style(style);
            }
            bar.set_prefix(name.to_owned());
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        } else {
            ProgressBar::hidden()
        };
        Step {
            name: name.to_owned(),
            bar,
            bars: self.bars.clone(),
            terminal: self.terminal,
            started: Instant::now(),
        }
    }
}

impl Step {
    /// Shows the state of the step while it runs.
    pub(crate) fn update(&self, state: &str) {
        self.bar.set_message(state.to_owned());
    }

    /// Ends the step with a mark, its time and a detail.
    pub(crate) fn finish(self, mark: char, detail: &str) {
        let line =
            format!("  {mark} {:<34} {:>7.1}s  {detail}", self.name, self.started.elapsed().as_secs_f64());
        self.bar.finish_and_clear();
        self.bars.remove(&self.bar);
        if self.terminal {
            // The work continues when the terminal is closed.
            drop(self.bars.println(line.trim_end()));
        } else {
            notify(line.trim_end());
        }
    }
}

fn console_is_terminal() -> bool {
    std::io::IsTerminal::is_terminal(&std::io::stderr())
}

/// Prints a message on standard error; standard output is for results.
#[expect(clippy::print_stderr, reason = "all messages to the user pass here")]
pub(crate) fn notify(text: &str) {
    eprintln!("{text}");
}

/// Prints a result that another program may read.
#[expect(clippy::print_stdout, reason = "results go to standard output")]
pub(crate) fn print(text: &str) {
    println!("{text}");
}

/// Prints an error with its causes, one line each.
pub(crate) fn error(error: &anyhow::Error) {
    let mut text = format!("error: {error}");
    for cause in error.chain().skip(1) {
        // Writing to a String cannot fail.
        let _ = write!(text, "\n  because: {}", cause.to_string().replace('\n', "\n  "));
    }
    notify(&text);
}

/// A size in MiB or GiB.
pub(crate) fn size(bytes: u64) -> String {
    let mebibytes = bytes / (1 << 20);
    if mebibytes >= 10 * 1024 { format!("{} GiB", mebibytes / 1024) } else { format!("{mebibytes} MiB") }
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes_have_a_readable_unit() {
        assert_eq!(super::size(139 << 20), "139 MiB");
        assert_eq!(super::size(24 << 30), "24 GiB");
    }
}
