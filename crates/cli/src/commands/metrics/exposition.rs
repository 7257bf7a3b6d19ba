//! Metrics with names and labels, in the text format of Prometheus (version 0.0.4).

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use std::collections::BTreeMap;
use std::fmt;

/// The labels of a metric.
pub type Labels = Vec<(&'static str, String)>;

/// A value: a number or a histogram.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Counter(u64),
    Gauge(f64),
    /// The sum of the observed values, and for each bound the number of values between the bound before and this one.
    Histogram {
        sum: f64,
        buckets: Vec<(f64, u64)>,
    },
}

#[derive(Debug)]
struct Family {
    help: &'static str,
    kind: MetricType,
    values: BTreeMap<Labels, Value>,
}

/// All metrics, grouped by name.
#[derive(Debug, Default)]
pub struct Exposition {
    families: BTreeMap<String, Family>,
}

impl Exposition {
    /// Adds a value. A counter's name is given without `_total`, which this adds. Readers refuse a text with two values
    /// of one name and the same labels, so the second is left out.
    pub fn add(&mut self, name: impl Into<String>, help: &'static str, labels: Labels, value: Value) {
        let kind = match value {
            Value::Counter(_) => MetricType::Counter,
            Value::Gauge(_) => MetricType::Gauge,
            Value::Histogram { .. } => MetricType::Histogram,
        };
        let empty = || Family { help, kind, values: BTreeMap::new() };
        self.families.entry(name.into()).or_insert_with(empty).values.entry(labels).or_insert(value);
    }

    /// The text.
    pub fn text(self) -> Result<String, fmt::Error> {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut text = String::new();
        prometheus_text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

impl Collector for Exposition {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, Family { help, kind, values }) in &self.families {
            let mut family = encoder.encode_descriptor(name, help, None, *kind)?;
            for (labels, value) in values {
                let mut metric = family.encode_family(labels)?;
                match value {
                    Value::Counter(count) => metric.encode_counter::<NoLabelSet, u64, f64>(count, None)?,
                    Value::Gauge(number) => metric.encode_gauge(number)?,
                    Value::Histogram { sum, buckets } => {
                        let count = buckets.iter().fold(0, |sum: u64, (_, count)| sum.saturating_add(*count));
                        metric.encode_histogram::<NoLabelSet>(*sum, count, buckets, None)?;
                    }
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_prometheus_own() {
        let mut metrics = Exposition::default();
        let labels = |name: &str| vec![("vg", name.to_owned())];
        metrics.add("a_bytes", "Bytes", labels("x"), Value::Counter(u64::MAX));
        metrics.add("a_bytes", "Bytes", labels("od\"d\\\n"), Value::Counter(1));
        metrics.add("a_bytes", "Bytes", labels("x"), Value::Counter(2));
        metrics.add("b_size", "Size", Vec::new(), Value::Gauge(1.5));
        let buckets = vec![(0.5, 2), (1.0, 0), (f64::INFINITY, 3)];
        metrics.add("c_seconds", "Time", labels("x"), Value::Histogram { sum: 12.25, buckets });
        assert_eq!(
            metrics.text().unwrap(),
            "# HELP a_bytes_total Bytes\n\
             # TYPE a_bytes_total counter\n\
             a_bytes_total{vg=\"od\\\"d\\\\\\n\"} 1\n\
             a_bytes_total{vg=\"x\"} 18446744073709551615\n\
             # HELP b_size Size\n\
             # TYPE b_size gauge\n\
             b_size 1.5\n\
             # HELP c_seconds Time\n\
             # TYPE c_seconds histogram\n\
             c_seconds_bucket{vg=\"x\",le=\"0.5\"} 2\n\
             c_seconds_bucket{vg=\"x\",le=\"1\"} 2\n\
             c_seconds_bucket{vg=\"x\",le=\"+Inf\"} 5\n\
             c_seconds_sum{vg=\"x\"} 12.25\n\
             c_seconds_count{vg=\"x\"} 5\n"
        );
    }
}
