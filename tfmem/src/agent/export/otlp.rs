//! Metrics and findings as OTLP messages. A process is a resource of its own, so that a Collector can add to it what it
//! knows of the pod (`k8sattributes`, associated by `k8s.pod.uid`).

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::{
    collector::{logs::v1::ExportLogsServiceRequest, metrics::v1::ExportMetricsServiceRequest},
    common::v1::{AnyValue, ArrayValue, InstrumentationScope, KeyValue, any_value},
    logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber},
    metrics::v1::{
        AggregationTemporality, Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, metric::Data,
        number_data_point,
    },
    resource::v1::Resource,
};
use prost::Message as _;

use crate::{
    agent::{
        ledgers::state::Finding,
        metrics::family::{Family, Kind, Labels, Point, Value},
        who::Who,
    },
    profile::word,
};

/// The event's name in logs.
pub const EVENT: &str = "tfmem.retention.finding";

/// What holds for all that the agent sends.
#[derive(Clone, Debug)]
pub struct Host {
    pub name: String,
    pub id: Option<String>,
    pub cluster: Option<String>,
    /// When the agent began, and what to add to the boot clock, ns since 1970.
    pub began: u64,
    pub boot: u64,
}

impl Host {
    fn attributes(&self, service: &str) -> Vec<KeyValue> {
        let mut all = vec![text("service.name", service), text("host.name", &self.name)];
        all.extend(self.id.as_ref().map(|id| text("host.id", id)));
        all.extend(self.cluster.as_ref().map(|cluster| text("tfmem.cluster", cluster)));
        all
    }
}

/// The metrics as bytes of an `ExportMetricsServiceRequest`.
pub fn metrics(families: &[Family], host: &Host, now: u64) -> Vec<u8> {
    let infos = infos(families);
    // By process; the agent's own under nobody.
    let mut by_process: BTreeMap<Option<String>, Vec<Metric>> = BTreeMap::new();
    for family in families {
        let mut parts: BTreeMap<Option<String>, Vec<NumberDataPoint>> = BTreeMap::new();
        for point in &family.points {
            let pid = pid_of(&point.labels);
            let info = pid.as_ref().and_then(|pid| infos.get(pid));
            parts.entry(pid).or_default().push(data_point(point, info, host, now));
        }
        for (pid, points) in parts {
            by_process.entry(pid).or_default().push(metric(family, points));
        }
    }
    let resource_metrics = by_process.into_iter().map(|(pid, metrics)| {
        let mut attributes = host.attributes(if pid.is_some() { "tensorflow" } else { "tfmem-agent" });
        let info = pid.as_ref().and_then(|pid| infos.get(pid));
        attributes
            .extend(info.into_iter().flat_map(|labels| labels.iter()).map(|(name, value)| attribute(name, value)));
        ResourceMetrics {
            resource: Some(Resource { attributes, ..Resource::default() }),
            scope_metrics: vec![ScopeMetrics { scope: Some(scope()), metrics, ..ScopeMetrics::default() }],
            ..ResourceMetrics::default()
        }
    });
    ExportMetricsServiceRequest { resource_metrics: resource_metrics.collect() }.encode_to_vec()
}

/// Who each process is, by its number.
fn infos(families: &[Family]) -> BTreeMap<String, Labels> {
    let info = families.iter().find(|family| family.name == "tfmem.process.info");
    let points = info.into_iter().flat_map(|family| &family.points);
    points.filter_map(|point| Some((pid_of(&point.labels)?, point.labels.clone()))).collect()
}

fn pid_of(labels: &Labels) -> Option<String> {
    labels.iter().find(|(name, _)| *name == "process.pid").map(|(_, value)| value.to_string())
}

fn metric(family: &Family, data_points: Vec<NumberDataPoint>) -> Metric {
    let data = match family.kind {
        Kind::Gauge => Data::Gauge(Gauge { data_points }),
        Kind::Counter => Data::Sum(Sum {
            data_points,
            aggregation_temporality: AggregationTemporality::Cumulative as i32,
            is_monotonic: true,
        }),
    };
    Metric {
        name: family.name.to_owned(),
        description: family.help.to_owned(),
        unit: family.unit.ucum().to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

/// What the resource says is not said again.
fn data_point(point: &Point, info: Option<&Labels>, host: &Host, now: u64) -> NumberDataPoint {
    let said = |name: &str| info.is_some_and(|info| info.iter().any(|(known, _)| *known == name));
    let labels = point.labels.iter().filter(|(name, _)| !said(name));
    NumberDataPoint {
        attributes: labels.map(|(name, value)| attribute(name, value)).collect(),
        start_time_unix_nano: host.began,
        time_unix_nano: now,
        value: Some(match point.value {
            Value::Int(n) => number_data_point::Value::AsInt(n),
            Value::Float(n) => number_data_point::Value::AsDouble(n),
        }),
        ..NumberDataPoint::default()
    }
}

/// Findings as bytes of an `ExportLogsServiceRequest`.
pub fn findings(findings: &[Finding], host: &Host, now: u64) -> Vec<u8> {
    let resource_logs = findings.iter().map(|finding| {
        let mut attributes = host.attributes("tensorflow");
        attributes.extend(identity(finding.pid, &finding.who, finding.version.as_deref()));
        let seconds = host.boot.saturating_add(finding.started) / 1_000_000_000;
        attributes.push(text("process.creation.time", &rfc3339(seconds)));
        ResourceLogs {
            resource: Some(Resource { attributes, ..Resource::default() }),
            scope_logs: vec![ScopeLogs {
                scope: Some(scope()),
                log_records: vec![record(finding, host, now)],
                ..ScopeLogs::default()
            }],
            ..ResourceLogs::default()
        }
    });
    ExportLogsServiceRequest { resource_logs: resource_logs.collect() }.encode_to_vec()
}

fn record(finding: &Finding, host: &Host, now: u64) -> LogRecord {
    let verdict = &finding.verdict;
    let evidence = verdict.evidence.iter().map(|line| string(line)).collect();
    let attributes = vec![
        text("tfmem.cause", &word(verdict.cause)),
        integer("tfmem.bytes", verdict.bytes),
        text("tfmem.view", if finding.in_full { "full" } else { "outside" }),
        text("tfmem.gives_back", &verdict.gives_back),
        key("tfmem.evidence", any_value::Value::ArrayValue(ArrayValue { values: evidence })),
        integer("tfmem.boundary.id", finding.boundary),
        text("tfmem.boundary.kind", &word(finding.kind)),
        text("tfmem.boundary.label", &finding.label),
    ];
    LogRecord {
        time_unix_nano: host.boot.saturating_add(finding.at),
        observed_time_unix_nano: now,
        severity_number: SeverityNumber::Warn as i32,
        severity_text: "WARN".to_owned(),
        body: Some(string(&verdict.summary)),
        attributes,
        event_name: EVENT.to_owned(),
        ..LogRecord::default()
    }
}

fn identity(pid: u32, who: &Who, version: Option<&str>) -> Vec<KeyValue> {
    let mut all = vec![integer("process.pid", u64::from(pid)), text("process.executable.name", &who.name)];
    let optional = [
        ("container.id", who.container.as_deref()),
        ("container.runtime", who.runtime),
        ("k8s.pod.uid", who.pod_uid.as_deref()),
        ("slurm.job.id", who.slurm_job.as_deref()),
        ("slurm.step.id", who.slurm_step.as_deref()),
        ("systemd.unit", who.unit.as_deref()),
        ("tfmem.job.name", who.job.as_deref()),
        ("tensorflow.version", version),
    ];
    all.extend(optional.into_iter().filter_map(|(name, value)| Some(text(name, value?))));
    all.extend(who.task.map(|task| integer("tfmem.task.index", task)));
    all
}

fn rfc3339(seconds: u64) -> String {
    humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds)).to_string()
}

fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "tfmem".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

fn attribute(name: &str, value: &str) -> KeyValue {
    // Numbers by the semantic conventions.
    match (name, value.parse::<i64>()) {
        ("process.pid" | "tfmem.task.index", Ok(n)) => key(name, any_value::Value::IntValue(n)),
        _ => text(name, value),
    }
}

fn text(name: &str, value: &str) -> KeyValue {
    key(name, any_value::Value::StringValue(value.to_owned()))
}

fn integer(name: &str, value: u64) -> KeyValue {
    key(name, any_value::Value::IntValue(i64::try_from(value).unwrap_or(i64::MAX)))
}

fn key(name: &str, value: any_value::Value) -> KeyValue {
    KeyValue { key: name.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn string(value: &str) -> AnyValue {
    AnyValue { value: Some(any_value::Value::StringValue(value.to_owned())) }
}
