//! Output: text on standard output, remarks on standard error, and colours.

use std::fmt;
use std::io::{self, ErrorKind, IsTerminal, Write};

use clap::ValueEnum;
use snafu::{ResultExt, Snafu};

#[derive(Debug, Snafu)]
pub(crate) enum Error {
    #[snafu(display("failed to write to standard output"))]
    Print { source: io::Error },
}

/// Prints the result of a command. A reader that closes the pipe early, such as `head`, is not an error.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    let mut stream = io::stdout().lock();
    match stream.write_all(text.as_bytes()).and_then(|()| stream.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => printed.context(PrintSnafu),
    }
}

/// Prints a remark on standard error, so that results in a file or a pipe stay clean.
pub(crate) fn remark(text: &str) {
    // If standard error fails there is no other place to report it.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// An error with all its causes in one line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(cause) = next {
        // The message of the API server is a sentence; the rest of its answer repeats it.
        let boxed = cause.downcast_ref::<Box<kube::Error>>().map(Box::as_ref);
        let rejection = match cause.downcast_ref::<kube::Error>().or(boxed) {
            Some(kube::Error::Api(status)) => Some(status.message.clone()),
            _ => None,
        };
        next = if rejection.is_some() { None } else { cause.source() };
        let cause = rejection.unwrap_or_else(|| cause.to_string());
        // Some errors repeat their cause.
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
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
        let enabled = match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                let disabled = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
                io::stdout().is_terminal() && !disabled
            }
        };
        if enabled { Paint::Colored } else { Paint::Plain }
    }
}

/// Whether text is coloured.
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
    fn a_rejection_of_the_api_server_is_reported_by_its_message() {
        let status = kube::core::Status {
            message: "secrets \"x\" is forbidden".to_owned(),
            code: 403,
            ..Default::default()
        };
        let error = crate::cluster::Error::List {
            resource: "secrets",
            source: Box::new(kube::Error::Api(Box::new(status))),
        };
        assert_eq!(chain(&error), "failed to list secrets: secrets \"x\" is forbidden");
    }

    #[test]
    fn plain_text_has_no_escapes() {
        assert_eq!(Paint::Plain.apply(Color::Red, "x"), "x");
        assert_eq!(ColorChoice::Always.paint().apply(Color::Red, "x"), "\x1b[31mx\x1b[0m");
    }
}
