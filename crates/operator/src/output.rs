//! What a person sees: text on standard output, remarks on standard error, colours where they are wanted.

use std::fmt;
use std::io::{self, ErrorKind, IsTerminal, Write};

use clap::ValueEnum;
use snafu::{ResultExt, Snafu};

#[derive(Debug, Snafu)]
pub(crate) enum Error {
    #[snafu(display("failed to write to standard output"))]
    Print { source: io::Error },
}

/// Prints what was asked for. A reader that has seen enough, such as `head`, is no failure.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    let mut stream = io::stdout().lock();
    match stream.write_all(text.as_bytes()).and_then(|()| stream.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => printed.context(PrintSnafu),
    }
}

/// Says something beside what was asked for, so that output that goes to a file or a pipe stays clean.
pub(crate) fn remark(text: &str) {
    // Where even this cannot be written there is nobody to tell.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// An error with all its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // Some errors repeat their cause.
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}

/// When output is coloured.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColorChoice {
    /// On a terminal, unless the environment has `NO_COLOR`.
    Auto,
    Always,
    Never,
}

impl ColorChoice {
    pub(crate) fn paint(self) -> Paint {
        let wanted = match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                io::stdout().is_terminal() && !refused
            }
        };
        if wanted { Paint::Colored } else { Paint::Plain }
    }
}

/// How text is marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    Plain,
    Colored,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Color {
    Green,
    Yellow,
    Red,
    Cyan,
    Bold,
    Dim,
}

impl Paint {
    pub(crate) fn apply(self, color: Color, text: impl fmt::Display) -> String {
        let code = match color {
            Color::Green => 32,
            Color::Yellow => 33,
            Color::Red => 31,
            Color::Cyan => 36,
            Color::Bold => 1,
            Color::Dim => 2,
        };
        match self {
            Self::Plain => text.to_string(),
            Self::Colored => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_has_no_escapes() {
        assert_eq!(Paint::Plain.apply(Color::Red, "x"), "x");
        assert_eq!(ColorChoice::Always.paint().apply(Color::Red, "x"), "\x1b[31mx\x1b[0m");
    }
}
