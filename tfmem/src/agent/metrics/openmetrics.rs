//! Metrics as Prometheus reads them: OpenMetrics text, by the crate of Prometheus' own people.

use std::{borrow::Cow, fmt};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric as _, text},
    metrics::MetricType,
    metrics::counter::ConstCounter,
    registry::{Registry, Unit as Suffix},
};

use super::family::{Family, Kind, Unit, Value};

pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[derive(Debug)]
struct Families(Vec<Family>);

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for family in self.0.iter().filter(|family| !family.points.is_empty()) {
            let name = family.name.replace('.', "_");
            let suffix = match family.unit {
                Unit::Bytes => Some(Suffix::Bytes),
                Unit::Seconds => Some(Suffix::Seconds),
                Unit::One => None,
            };
            let kind = match family.kind {
                Kind::Gauge => MetricType::Gauge,
                Kind::Counter => MetricType::Counter,
            };
            let mut metric = encoder.encode_descriptor(&name, family.help, suffix.as_ref(), kind)?;
            for point in &family.points {
                let labels: Vec<(String, &str)> =
                    point.labels.iter().map(|(name, value)| (name.replace('.', "_"), value.as_ref())).collect();
                let series = metric.encode_family(&labels)?;
                match (family.kind, point.value) {
                    (Kind::Counter, Value::Int(n)) => ConstCounter::new(n.max(0) as u64).encode(series)?,
                    (Kind::Counter, Value::Float(n)) => ConstCounter::new(n).encode(series)?,
                    (Kind::Gauge, Value::Int(n)) => gauge(series, n)?,
                    (Kind::Gauge, Value::Float(n)) => gauge(series, n)?,
                }
            }
        }
        Ok(())
    }
}

fn gauge<N>(series: prometheus_client::encoding::MetricEncoder, value: N) -> fmt::Result
where
    prometheus_client::metrics::gauge::ConstGauge<N>: prometheus_client::encoding::EncodeMetric,
{
    prometheus_client::metrics::gauge::ConstGauge::new(value).encode(series)
}

/// The page. `labels` hold for all of it.
///
/// # Errors
/// Never: text has room.
pub fn page(families: Vec<Family>, labels: &[(&'static str, String)]) -> Result<String, fmt::Error> {
    let labels = labels.iter().map(|(name, value)| (Cow::Borrowed(*name), Cow::Owned(value.clone())));
    let mut registry = Registry::with_labels(labels);
    registry.register_collector(Box::new(Families(families)));
    let mut page = String::new();
    text::encode(&mut page, &registry)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_units_and_labels_are_prometheus() {
        let mut retained = Family::gauge("tfmem.process.memory.retained", "What is kept.", Unit::Bytes);
        retained.add(vec![("process.pid", "7".into()), ("tfmem.cause", "say \"so\"\n".into())], Value::Int(64));
        let time = Family::counter("tfmem.agent.cpu.time", "Time.", Unit::Seconds).with(Vec::new(), Value::Float(0.5));
        let lost = Family::counter("tfmem.agent.events.lost", "Lost.", Unit::One).with(Vec::new(), Value::Int(3));
        let none = Family::gauge("tfmem.none", "Nothing.", Unit::One);
        let page = page(vec![retained, time, lost, none], &[("cluster", "a".to_owned())]).unwrap();
        let expected = "\
# HELP tfmem_process_memory_retained_bytes What is kept.
# TYPE tfmem_process_memory_retained_bytes gauge
# UNIT tfmem_process_memory_retained_bytes bytes
tfmem_process_memory_retained_bytes{cluster=\"a\",process_pid=\"7\",tfmem_cause=\"say \\\"so\\\"\\n\"} 64
# HELP tfmem_agent_cpu_time_seconds Time.
# TYPE tfmem_agent_cpu_time_seconds counter
# UNIT tfmem_agent_cpu_time_seconds seconds
tfmem_agent_cpu_time_seconds_total{cluster=\"a\"} 0.5
# HELP tfmem_agent_events_lost Lost.
# TYPE tfmem_agent_events_lost counter
tfmem_agent_events_lost_total{cluster=\"a\"} 3
# EOF
";
        assert_eq!(page, expected);
    }
}
