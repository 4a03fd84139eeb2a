//! Reports of full tracing as pprof profiles: who allocated what is kept. Pushed to Pyroscope
//! (`push.v1.PusherService/Push`, <https://github.com/grafana/pyroscope/blob/main/api/push/v1/push.proto>, by the Connect
//! protocol) or to Parca (`WriteRaw` as JSON,
//! <https://github.com/parca-dev/parca/blob/main/proto/parca/profilestore/v1alpha1/profilestore.proto>).

use base64::{Engine as _, engine::general_purpose::STANDARD};
use prost::Message as _;
use serde_json::json;

use super::{What, otlp::Host};
use crate::{
    agent::{config::PprofKind, ledgers::Traced},
    export::pprof,
    profile::{Profile, Selection, Which},
};

/// The profile's name: what is in use, as in Go's heap profiles.
const NAME: &str = "memory";

/// One message for each profile; `None`: nothing is kept in it.
pub fn message(traced: &Traced, kind: PprofKind, host: &Host) -> Option<(What, Vec<u8>)> {
    let selection = Selection { which: Which::End, pid: Some(traced.pid), layer: None };
    let profile = Profile::of(&traced.report, &selection).ok()?;
    if profile.rows.is_empty() {
        return None;
    }
    let mut raw = Vec::new();
    pprof::write(&profile, &mut raw).ok()?;
    let labels = labels(traced, host);
    Some(match kind {
        PprofKind::Pyroscope => (What::Pyroscope, push_request(&labels, raw)),
        PprofKind::Parca => (What::Parca, write_raw(&labels, &raw)),
    })
}

/// By the names that both know; the pid is a label of the samples.
fn labels(traced: &Traced, host: &Host) -> Vec<(&'static str, String)> {
    let who = &traced.who;
    let mut labels =
        vec![("__name__", NAME.to_owned()), ("service_name", who.name.clone()), ("host", host.name.clone())];
    let optional = [
        ("cluster", host.cluster.clone()),
        ("k8s_pod_uid", who.pod_uid.clone()),
        ("container_id", who.container.clone()),
        ("slurm_job_id", who.slurm_job.clone()),
        ("tfmem_job_name", who.job.clone()),
        ("tfmem_task_index", who.task.map(|task| task.to_string())),
    ];
    labels.extend(optional.into_iter().filter_map(|(name, value)| Some((name, value?))));
    labels
}

#[derive(Clone, PartialEq, prost::Message)]
struct PushRequest {
    #[prost(message, repeated, tag = "1")]
    series: Vec<RawProfileSeries>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RawProfileSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<LabelPair>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<RawSample>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
struct RawSample {
    #[prost(bytes = "vec", tag = "1")]
    raw_profile: Vec<u8>,
}

fn push_request(labels: &[(&str, String)], raw_profile: Vec<u8>) -> Vec<u8> {
    let pair = |(name, value): &(&str, String)| LabelPair { name: (*name).to_owned(), value: value.clone() };
    let series =
        RawProfileSeries { labels: labels.iter().map(pair).collect(), samples: vec![RawSample { raw_profile }] };
    PushRequest { series: vec![series] }.encode_to_vec()
}

fn write_raw(labels: &[(&str, String)], raw: &[u8]) -> Vec<u8> {
    let labels: Vec<_> = labels.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
    let request = json!({
        "series": [{ "labels": { "labels": labels }, "samples": [{ "rawProfile": STANDARD.encode(raw) }] }],
        "normalized": false,
    });
    request.to_string().into_bytes()
}
