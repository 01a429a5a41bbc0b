//! Metrics in the text format of Prometheus.

#[derive(Clone, Debug)]
pub(crate) struct Metrics(String);

impl Metrics {
    pub(crate) fn new(text: String) -> Self {
        Self(text)
    }

    /// The sum of all lines of a metric with this label; the empty label matches every line.
    pub(crate) fn sum(&self, name: &str, label: &str) -> f64 {
        let values = self.0.lines().filter_map(|line| {
            let rest = line.strip_prefix(name).filter(|rest| rest.starts_with(['{', ' ']))?;
            let (labels, value) = rest.rsplit_once(' ')?;
            labels.contains(label).then(|| value.parse::<f64>().ok())?
        });
        values.sum()
    }

    /// Requests that wrote to the API server.
    pub(crate) fn writes(&self) -> f64 {
        self.sum("openstack_operator_writes_total", "")
    }

    pub(crate) fn reconciles(&self) -> f64 {
        self.sum("openstack_operator_reconciles_total", "")
    }

    /// Resident memory of the process in bytes.
    pub(crate) fn memory(&self) -> f64 {
        self.sum("process_resident_memory_bytes", "")
    }

    pub(crate) fn leads(&self) -> bool {
        self.sum("openstack_operator_leader", "") > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_metric_are_added_up() {
        let text = "# TYPE openstack_operator_writes counter\n\
                    openstack_operator_writes_total{verb=\"apply\"} 12\n\
                    openstack_operator_writes_total{verb=\"status\"} 3\n\
                    openstack_operator_writes_totals 100\n\
                    process_resident_memory_bytes 1.5e+06\n";
        let metrics = Metrics::new(text.to_owned());
        let close = |one: f64, other: f64| (one - other).abs() < 0.5;
        assert!(close(metrics.writes(), 15.0), "{}", metrics.writes());
        assert!(close(metrics.sum("openstack_operator_writes_total", "verb=\"status\""), 3.0));
        assert!(close(metrics.memory(), 1_500_000.0));
        assert!(!metrics.leads());
    }
}
