//! The events of the load: answers of APIs and instances, and writes that an API has acknowledged.

use serde::Deserialize;

use super::fault::Api;
use super::writes::Write;

/// One line of the file that the load writes.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(super) enum Event {
    /// All streams run.
    Started,
    /// A request to an API.
    Probe {
        api: Api,
        stream: String,
        #[serde(flatten)]
        outcome: Outcome,
    },
    /// A connection to an instance.
    Answer {
        instance: String,
        #[serde(flatten)]
        outcome: Outcome,
    },
    /// A write that an API has acknowledged.
    Write(Write),
}

/// The outcome of one request.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct Outcome {
    /// When it started, in seconds since 1970.
    pub(super) time: f64,
    pub(super) seconds: f64,
    pub(super) ok: bool,
    /// Why it failed.
    pub(super) detail: Option<String>,
}

/// A span of time, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Span {
    pub(super) from: f64,
    pub(super) to: f64,
}

impl Span {
    fn clip(self, window: Self) -> Option<Self> {
        let clipped = Self { from: self.from.max(window.from), to: self.to.min(window.to) };
        (clipped.from < clipped.to).then_some(clipped)
    }

    pub(super) fn seconds(self) -> f64 {
        self.to - self.from
    }
}

/// The streams of requests that events contain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stream<'a> {
    Api(Api, &'a str),
    Instance(&'a str),
}

/// The stream of an event, and its outcome.
pub(super) fn outcome(event: &Event) -> Option<(Stream<'_>, &Outcome)> {
    match event {
        Event::Probe { api, stream, outcome } => Some((Stream::Api(*api, stream), outcome)),
        Event::Answer { instance, outcome } => Some((Stream::Instance(instance), outcome)),
        Event::Started | Event::Write(_) => None,
    }
}

/// The outages of one stream within a window: each lasts from the first failed request to the answer of the next
/// successful one.
pub(super) fn outages<'a>(outcomes: impl IntoIterator<Item = &'a Outcome>, window: Span) -> Vec<Span> {
    let mut spans = Vec::new();
    let mut failing: Option<f64> = None;
    for outcome in outcomes {
        if outcome.ok {
            let to = outcome.time + outcome.seconds;
            spans.extend(failing.take().map(|from| Span { from, to }));
        } else {
            failing.get_or_insert(outcome.time);
        }
    }
    spans.extend(failing.map(|from| Span { from, to: window.to }));
    spans.into_iter().filter_map(|span| span.clip(window)).collect()
}

/// Seconds in which at least one stream of an API failed.
pub(super) fn error_seconds(events: &[Event], api: Api, window: Span) -> f64 {
    let of_api = |stream: &Stream<'_>| matches!(stream, Stream::Api(found, _) if *found == api);
    let streams = streams(events).into_iter().filter(of_api);
    union(streams.flat_map(|stream| outages(of_stream(events, &stream), window)).collect())
}

/// The longest time in seconds for which an instance did not answer.
pub(super) fn longest_silence(events: &[Event], instance: &str, window: Span) -> f64 {
    let spans = outages(of_stream(events, &Stream::Instance(instance)), window);
    spans.into_iter().map(Span::seconds).fold(0.0, f64::max)
}

/// The streams whose last request failed, or that had a failed request since a time.
pub(super) fn failing_since(events: &[Event], since: f64) -> Vec<Stream<'_>> {
    let failed = |stream: &Stream<'_>| {
        let mut last_failed = false;
        let mut recently = false;
        for outcome in of_stream(events, stream) {
            last_failed = !outcome.ok;
            recently |= !outcome.ok && outcome.time + outcome.seconds >= since;
        }
        last_failed || recently
    };
    streams(events).into_iter().filter(failed).collect()
}

/// Why the last failed request of a stream failed.
pub(super) fn last_failure<'a>(events: &'a [Event], stream: &Stream<'_>) -> Option<&'a str> {
    of_stream(events, stream).into_iter().rev().find_map(|outcome| outcome.detail.as_deref())
}

/// All streams, each once.
fn streams(events: &[Event]) -> Vec<Stream<'_>> {
    let mut streams: Vec<Stream<'_>> = events.iter().filter_map(outcome).map(|(stream, _)| stream).collect();
    streams.sort();
    streams.dedup();
    streams
}

fn of_stream<'a>(events: &'a [Event], stream: &Stream<'_>) -> Vec<&'a Outcome> {
    let outcomes = events.iter().filter_map(outcome);
    outcomes.filter(|(found, _)| found == stream).map(|(_, outcome)| outcome).collect()
}

/// The length of the union of spans: time in which two streams fail counts once.
fn union(mut spans: Vec<Span>) -> f64 {
    spans.sort_by(|one, other| one.from.total_cmp(&other.from));
    let (mut seconds, mut reached) = (0.0, f64::MIN);
    for span in spans {
        seconds += (span.to - span.from.max(reached)).max(0.0);
        reached = reached.max(span.to);
    }
    seconds
}

#[cfg(test)]
mod tests {
    use anyhow::Result;

    use super::*;

    fn read(lines: &[&str]) -> Result<Vec<Event>> {
        Ok(lines.iter().map(|line| serde_json::from_str(line)).collect::<Result<_, _>>()?)
    }

    fn probe(stream: &str, time: f64, ok: bool) -> Event {
        let outcome = Outcome { time, seconds: 0.5, ok, detail: (!ok).then(|| "503".to_owned()) };
        Event::Probe { api: Api::Nova, stream: stream.to_owned(), outcome }
    }

    const WINDOW: Span = Span { from: 100.0, to: 200.0 };

    fn assert_seconds(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-6, "{found} s instead of {expected} s");
    }

    #[test]
    fn the_lines_of_the_load_are_read() -> Result<()> {
        let events = read(&[
            r#"{"event": "started"}"#,
            r#"{"event": "probe", "api": "keystone", "stream": "read", "time": 1.5, "seconds": 0.1, "ok": false, "detail": "503"}"#,
            r#"{"event": "answer", "instance": "drill-1", "time": 2, "seconds": 0.1, "ok": true, "detail": null}"#,
            r#"{"event": "write", "time": 3, "kind": "project", "id": "a"}"#,
        ])?;
        assert_eq!(events[0], Event::Started);
        let detail = outcome(&events[1]).and_then(|(_, outcome)| outcome.detail.as_deref());
        assert_eq!(detail, Some("503"));
        assert_eq!(outcome(&events[2]).map(|(stream, _)| stream), Some(Stream::Instance("drill-1")));
        assert!(matches!(&events[3], Event::Write(write) if write.id == "a"));
        assert!(read(&[r#"{"event": "surprise"}"#]).is_err());
        Ok(())
    }

    #[test]
    fn an_outage_lasts_from_the_first_failure_to_the_next_answer() {
        let events = [
            probe("read", 110.0, true),
            probe("read", 111.0, false),
            probe("read", 116.0, false),
            probe("read", 121.0, true),
            probe("read", 130.0, false),
            probe("read", 131.0, true),
        ];
        assert_seconds(error_seconds(&events, Api::Nova, WINDOW), 10.5 + 1.5);
        assert_seconds(error_seconds(&events, Api::Glance, WINDOW), 0.0);
    }

    #[test]
    fn time_in_which_two_streams_fail_counts_once() {
        let events = [
            probe("read", 110.0, false),
            probe("write", 112.0, false),
            probe("read", 114.5, true),
            probe("write", 119.5, true),
        ];
        assert_seconds(error_seconds(&events, Api::Nova, WINDOW), 10.0);
    }

    #[test]
    fn only_the_time_of_the_fault_counts() {
        let before = [probe("read", 90.0, false), probe("read", 109.5, true)];
        assert_seconds(error_seconds(&before, Api::Nova, WINDOW), 10.0);
        let without_end = [probe("read", 195.0, false)];
        assert_seconds(error_seconds(&without_end, Api::Nova, WINDOW), 5.0);
        let outside = [probe("read", 90.0, false), probe("read", 91.0, true)];
        assert_seconds(error_seconds(&outside, Api::Nova, WINDOW), 0.0);
    }

    #[test]
    fn the_longest_silence_of_an_instance_counts() {
        let answer = |time, ok| Event::Answer {
            instance: "a".to_owned(),
            outcome: Outcome { time, seconds: 0.0, ok, detail: None },
        };
        let events = [answer(110.0, false), answer(112.0, true), answer(120.0, false), answer(125.0, true)];
        assert_seconds(longest_silence(&events, "a", WINDOW), 5.0);
        assert_seconds(longest_silence(&events, "b", WINDOW), 0.0);
    }

    #[test]
    fn a_stream_fails_while_its_last_request_or_a_recent_one_failed() {
        let events = [
            probe("read", 110.0, false),
            probe("read", 111.0, true),
            probe("write", 90.0, false),
            probe("login", 90.0, true),
        ];
        let names = |since| -> Vec<String> {
            failing_since(&events, since).iter().map(|stream| format!("{stream:?}")).collect()
        };
        assert_eq!(names(105.0).len(), 2);
        assert_eq!(last_failure(&events, &Stream::Api(Api::Nova, "read")), Some("503"));
        assert_eq!(last_failure(&events, &Stream::Api(Api::Nova, "login")), None);
        assert_eq!(names(112.0), [format!("{:?}", Stream::Api(Api::Nova, "write"))]);
    }
}
