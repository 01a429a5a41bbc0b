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
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(cause) = next {
        // What the API server says is a sentence already; the rest of its answer repeats it.
        let boxed = cause.downcast_ref::<Box<kube::Error>>().map(Box::as_ref);
        let refused = match cause.downcast_ref::<kube::Error>().or(boxed) {
            Some(kube::Error::Api(status)) => Some(status.message.clone()),
            _ => None,
        };
        next = if refused.is_some() { None } else { cause.source() };
        let cause = refused.unwrap_or_else(|| cause.to_string());
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
    fn an_answer_of_the_api_server_is_told_by_its_message() {
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
