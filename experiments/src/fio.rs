//! fio: the job file of the repository, run with the parameters of a measurement, and what it said.

use crate::command::{self, Result};
use crate::context::Context;
use crate::stack::text;
use serde_json::Value;
use std::path::Path;

/// One kind of request after another on a device or file; every parameter is a variable of it.
const JOB: &str = include_str!("../fio/requests.fio");

/// The variables of the job file.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    pub target: &'a Path,
    /// "randwrite", "write", "read", "randread", "randrw".
    pub rw: &'a str,
    pub block: u64,
    pub depth: u32,
    /// Past the page cache?
    pub direct: bool,
    /// The range that is used, in bytes: where it begins and how long it is.
    pub offset: u64,
    pub span: u64,
    pub requests: u64,
    /// At most this many seconds.
    pub seconds: u64,
}

/// What was reached.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reached {
    pub requests: u64,
    pub iops: f64,
    pub mb_s: f64,
    /// Milliseconds.
    pub mean: f64,
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
}

/// Runs the job to its end.
pub fn run(context: &Context, job: &Job<'_>) -> Result<Reached> {
    parse(&command::output(prepared(context, job)?)?)
}

/// fio with the job's variables.
fn prepared(context: &Context, job: &Job<'_>) -> Result<std::process::Command> {
    let file = context.dir.join("requests.fio");
    std::fs::write(&file, JOB).map_err(|e| format!("cannot write {}: {e}", file.display()))?;
    let mut command = command::command("fio");
    command.args(["--output-format=json", &text(&file)]);
    let variables = [
        ("TARGET", text(job.target)),
        ("RW", job.rw.to_owned()),
        ("BLOCK", job.block.to_string()),
        ("DEPTH", job.depth.to_string()),
        ("DIRECT", u8::from(job.direct).to_string()),
        ("ENGINE", if job.direct { "libaio" } else { "psync" }.to_owned()),
        ("OFFSET", job.offset.to_string()),
        ("SPAN", job.span.to_string()),
        ("REQUESTS", job.requests.to_string()),
        ("SECONDS", job.seconds.to_string()),
    ];
    command.envs(variables);
    Ok(command)
}

/// What fio's JSON says of the direction that moved more.
pub fn parse(said: &str) -> Result<Reached> {
    let start = said.find('{').ok_or_else(|| format!("fio said no figures: {said:.200}"))?;
    let value: Value = serde_json::from_str(&said[start..]).map_err(|e| format!("fio's figures: {e}"))?;
    let job = &value["jobs"][0];
    if job["error"].as_i64() != Some(0) {
        return Err(format!("fio failed with error {}", job["error"]));
    }
    let count = |side: &str| job[side]["total_ios"].as_u64().unwrap_or(0);
    let side = if count("write") >= count("read") { "write" } else { "read" };
    let figure = |path: &str| {
        let found = job.pointer(&format!("/{side}/{path}")).and_then(Value::as_f64);
        found.ok_or_else(|| format!("fio says nothing of {path}"))
    };
    let quantile = |name: &str| figure(&format!("clat_ns/percentile/{name}")).map(|ns| ns / 1e6);
    Ok(Reached {
        requests: count(side),
        iops: figure("iops")?,
        mb_s: figure("bw_bytes")? / 1e6,
        mean: figure("clat_ns/mean")? / 1e6,
        p50: quantile("50.000000")?,
        p99: quantile("99.000000")?,
        p999: quantile("99.900000")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = r#"note: something
{"jobs":[{"error":0,"read":{"total_ios":0},"write":{"total_ios":500,"iops":2000.5,"bw_bytes":8000000,
"clat_ns":{"mean":250000.0,"percentile":{"50.000000":200000,"99.000000":900000,"99.900000":1500000}}}}]}"#;

    #[test]
    fn figures_are_found_in_what_fio_says() {
        let reached = parse(SAID).unwrap();
        let asked = Reached { requests: 500, iops: 2000.5, mb_s: 8.0, mean: 0.25, p50: 0.2, p99: 0.9, p999: 1.5 };
        assert_eq!(reached, asked);
        assert!(parse("fio: no such file").unwrap_err().contains("no figures"));
        assert!(parse(&SAID.replace("\"error\":0", "\"error\":5")).unwrap_err().contains("error 5"));
        assert!(parse(&SAID.replace("iops", "x")).unwrap_err().contains("iops"));
    }
}
