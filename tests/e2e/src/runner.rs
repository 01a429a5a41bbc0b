//! Runs named checks in order on a state that they share, and reports each with its time.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, anyhow, bail};
use futures::FutureExt;
use futures::future::{LocalBoxFuture, join_all};

type Action<S> = Box<dyn for<'a> Fn(&'a S) -> LocalBoxFuture<'a, Result<()>>>;

/// One check on the state `S`.
pub struct Check<S> {
    name: String,
    needs: Vec<String>,
    cost: Cost,
    action: Action<S>,
}

#[derive(Clone, Copy, PartialEq)]
enum Cost {
    Usual,
    Long,
}

impl<S> Check<S> {
    pub fn new(
        name: impl Into<String>,
        action: impl for<'a> Fn(&'a S) -> LocalBoxFuture<'a, Result<()>> + 'static,
    ) -> Self {
        Self { name: name.into(), needs: Vec::new(), cost: Cost::Usual, action: Box::new(action) }
    }

    /// The check runs only if another one has passed.
    #[must_use]
    pub fn after(mut self, other: impl Into<String>) -> Self {
        self.needs.push(other.into());
        self
    }

    /// The check runs only with `--include-ignored`.
    #[must_use]
    pub fn long(mut self) -> Self {
        self.cost = Cost::Long;
        self
    }
}

/// Checks that run at the same time.
pub type Stage<S> = Vec<Check<S>>;

/// The checks to run, from the command line of the test program.
#[derive(Debug, Default, PartialEq)]
struct Selection {
    /// Part of the names of the checks. Checks that these need run too.
    filter: Option<String>,
    include_long: bool,
}

impl Selection {
    fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self> {
        let mut selection = Self::default();
        for argument in arguments {
            match argument.as_str() {
                "--include-ignored" => selection.include_long = true,
                flag if flag.starts_with('-') => {
                    bail!("unknown option {flag}: pass part of a name, or --include-ignored")
                }
                _ if selection.filter.is_some() => bail!("more than one name: {argument}"),
                _ => selection.filter = Some(argument),
            }
        }
        Ok(selection)
    }

    fn matches(&self, suite: &str, name: &str) -> bool {
        self.filter.as_ref().is_none_or(|filter| format!("{suite}::{name}").contains(filter))
    }

    fn allows(&self, cost: Cost) -> bool {
        cost == Cost::Usual || self.include_long
    }

    /// Names of the checks to run: those that match, and those that they need.
    fn names<S>(&self, suite: &str, stages: &[Stage<S>]) -> BTreeSet<String> {
        let allowed = |check: &&Check<S>| self.allows(check.cost);
        let mut names = BTreeSet::new();
        // Needs precede the checks that have them, so one pass backwards finds all.
        for check in stages.iter().rev().flatten().filter(allowed) {
            if self.matches(suite, &check.name) || names.contains(&check.name) {
                names.insert(check.name.clone());
                names.extend(check.needs.iter().cloned());
            }
        }
        names
    }
}

/// Runs suites of checks and counts their results.
pub struct Runner {
    selection: Selection,
    started: Instant,
    passed: u32,
    ignored: u32,
    not_run: u32,
    failures: Vec<(String, String)>,
}

impl Runner {
    /// Takes the arguments that a test program gets, without its own name.
    pub fn new(arguments: impl IntoIterator<Item = String>) -> Result<Self> {
        let selection = Selection::parse(arguments)?;
        Ok(Self {
            selection,
            started: Instant::now(),
            passed: 0,
            ignored: 0,
            not_run: 0,
            failures: Vec::new(),
        })
    }

    /// Whether any check of a suite is to run. A suite of which none is needs no setup.
    #[must_use]
    pub fn selects<S>(&self, suite: &str, stages: &[Stage<S>]) -> bool {
        !self.selection.names(suite, stages).is_empty()
    }

    /// Reports the checks of a suite that is not selected.
    pub fn ignore<S>(&mut self, suite: &str, stages: &[Stage<S>]) {
        for check in stages.iter().flatten().filter(|check| self.selection.matches(suite, &check.name)) {
            self.ignored += 1;
            print(&format!("test {suite}::{} ... ignored: pass --long", check.name));
        }
    }

    /// Runs the selected checks stage by stage. After a failure it calls `describe` to record the state.
    pub async fn run<S>(
        &mut self,
        suite: &str,
        state: &S,
        stages: Vec<Stage<S>>,
        describe: impl AsyncFn(&S),
    ) {
        let selected = self.selection.names(suite, &stages);
        let mut passed = BTreeSet::new();
        for stage in stages {
            let mut due = Vec::new();
            for check in stage {
                if !selected.contains(&check.name) {
                    if self.selection.matches(suite, &check.name) {
                        self.ignored += 1;
                        print(&format!("test {suite}::{} ... ignored: pass --long", check.name));
                    }
                } else if let Some(need) = check.needs.iter().find(|need| !passed.contains(*need)) {
                    self.not_run += 1;
                    print(&format!("test {suite}::{} ... not run: needs {suite}::{need}", check.name));
                } else {
                    due.push(check);
                }
            }
            let results = join_all(due.iter().map(|check| attempt(suite, check, state))).await;
            let failed_before = self.failures.len();
            for (check, result) in due.into_iter().zip(results) {
                match result {
                    Ok(()) => {
                        self.passed += 1;
                        passed.insert(check.name);
                    }
                    Err(error) => {
                        self.failures.push((format!("{suite}::{}", check.name), format!("{error:?}")));
                    }
                }
            }
            if self.failures.len() > failed_before {
                describe(state).await;
            }
        }
    }

    /// Counts a failure outside of the checks, e.g. of the removal of a namespace.
    pub fn fail(&mut self, name: &str, error: &anyhow::Error) {
        print(&format!("test {name} ... FAILED"));
        self.failures.push((name.to_owned(), format!("{error:?}")));
    }

    /// Prints failures and counts in the format of cargo's own harness.
    #[must_use]
    pub fn finish(self) -> ExitCode {
        let Self { started, passed, ignored, not_run, failures, .. } = self;
        if !failures.is_empty() {
            print("\nfailures:\n");
            for (name, error) in &failures {
                print(&format!("---- {name} ----\nError: {error}\n"));
            }
        }
        let verdict = if failures.is_empty() { "ok" } else { "FAILED" };
        print(&format!(
            "\ntest result: {verdict}. {passed} passed; {} failed; {ignored} ignored; {not_run} not run; \
             finished in {:.2}s",
            failures.len(),
            started.elapsed().as_secs_f64()
        ));
        if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// Runs one check to its end and reports it. A panic is a failure of the check alone.
async fn attempt<S>(suite: &str, check: &Check<S>, state: &S) -> Result<()> {
    let started = Instant::now();
    let result = AssertUnwindSafe((check.action)(state)).catch_unwind().await;
    let result = result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Err(anyhow!("panic: {}", text.unwrap_or_default()))
    });
    let verdict = if result.is_ok() { "ok" } else { "FAILED" };
    let seconds = started.elapsed().as_secs_f64();
    print(&format!("test {suite}::{} ... {verdict} ({seconds:.1} s)", check.name));
    result
}

#[expect(
    clippy::print_stdout,
    reason = "the program is a test harness, and its own tests capture the output"
)]
fn print(text: &str) {
    println!("{text}");
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use futures::executor::block_on;

    use super::*;

    type Log = RefCell<Vec<&'static str>>;

    fn passes(name: &'static str) -> Check<Log> {
        Check::new(name, move |log: &Log| {
            async move {
                log.borrow_mut().push(name);
                Ok(())
            }
            .boxed_local()
        })
    }

    fn fails(name: &'static str) -> Check<Log> {
        Check::new(name, |_: &Log| async { bail!("broken") }.boxed_local())
    }

    fn run(arguments: &[&str], stages: Vec<Stage<Log>>) -> (Runner, Vec<&'static str>) {
        let mut runner = Runner::new(arguments.iter().map(ToString::to_string)).unwrap();
        let log = Log::default();
        block_on(runner.run("suite", &log, stages, async |log: &Log| log.borrow_mut().push("described")));
        (runner, log.into_inner())
    }

    #[test]
    fn a_failure_stops_only_the_checks_that_need_it() {
        let stages = vec![
            vec![passes("start")],
            vec![fails("breaks").after("start"), passes("beside").after("start")],
            vec![passes("dependent").after("breaks")],
            vec![passes("independent").after("start")],
        ];
        let (runner, log) = run(&[], stages);
        assert_eq!(log, ["start", "beside", "described", "independent"]);
        assert_eq!((runner.passed, runner.not_run), (3, 1));
        let [(name, error)] = runner.failures.as_slice() else { panic!("{:?}", runner.failures) };
        assert_eq!(name, "suite::breaks");
        assert!(error.contains("broken"), "{error}");
        assert_eq!(runner.finish(), ExitCode::FAILURE);
    }

    #[test]
    fn a_filter_selects_checks_and_their_needs() {
        let stages = || {
            vec![
                vec![passes("start")],
                vec![passes("middle").after("start")],
                vec![passes("other").after("start")],
                vec![passes("end").after("middle")],
            ]
        };
        assert_eq!(run(&["suite::end"], stages()).1, ["start", "middle", "end"]);
        assert_eq!(run(&["nothing"], stages()).1, Vec::<&str>::new());
        assert_eq!(run(&[], stages()).1, ["start", "middle", "other", "end"]);
    }

    #[test]
    fn long_checks_run_on_request() {
        let stages = || vec![vec![passes("quick")], vec![passes("slow").long()]];
        let (runner, log) = run(&[], stages());
        assert_eq!((log, runner.ignored), (vec!["quick"], 1));
        assert_eq!(run(&["--include-ignored"], stages()).1, ["quick", "slow"]);
        assert!(Runner::new(["--surprise".to_owned()]).is_err());
    }

    #[test]
    fn a_panic_is_a_failure_of_its_check() {
        let panics = Check::new("panics", |_: &Log| async { panic!("at once") }.boxed_local());
        let (runner, log) = run(&[], vec![vec![panics], vec![passes("next")]]);
        assert_eq!(log, ["described", "next"]);
        assert!(runner.failures[0].1.contains("at once"), "{:?}", runner.failures);
    }
}
