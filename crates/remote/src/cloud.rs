//! A store in an object store that speaks S3.

use crate::failure::{Result, failed, usage};
use crate::known::Known;
use futures_util::TryStreamExt;
use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::path::Path;
use object_store::{
    ClientOptions, Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutPayload, RetryConfig,
};
use rowen_transfer::store::{Created, Objects, Remedy, Trouble};
use std::ops::Range;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// How long one request may take: a segment has 32 MiB.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct Cloud {
    bucket: Box<dyn ObjectStore>,
    prefix: String,
    runtime: Runtime,
}

fn trouble(error: &Error) -> Trouble {
    let remedy = match error {
        Error::PermissionDenied { .. }
        | Error::Unauthenticated { .. }
        | Error::InvalidPath { .. }
        | Error::NotSupported { .. }
        | Error::NotImplemented { .. }
        | Error::UnknownConfigurationKey { .. } => Remedy::Nothing,
        _ => Remedy::AskAgain,
    };
    // The first line says what happened; the rest is of who called whom.
    let why = error.to_string().lines().next().unwrap_or_default().trim_end_matches('.').to_owned();
    Trouble { why, remedy }
}

impl Cloud {
    /// `s3://BUCKET/PREFIX`. Who it is comes from the environment, a profile's web token or the instance, never from arguments.
    pub fn new(known: &Known) -> Result<Cloud> {
        let rest = known.url.strip_prefix("s3://").unwrap_or_default();
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if bucket.is_empty() {
            return Err(usage(format!("\"{}\" names no bucket: s3://BUCKET/PREFIX.", known.url.escape_debug())));
        }
        // An error: somebody installed one before, which is as good.
        let _installed = rustls::crypto::ring::default_provider().install_default();
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.map_err(|e| failed(format!("Cannot start threads: {e}.")))?;
        let retries = RetryConfig { max_retries: 3, retry_timeout: PATIENCE, ..RetryConfig::default() };
        let mut builder = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_conditional_put(S3ConditionalPut::ETagMatch)
            .with_retry(retries);
        let mut options = ClientOptions::new().with_timeout(PATIENCE).with_connect_timeout(Duration::from_secs(20));
        if let Some(endpoint) = &known.endpoint {
            options = options.with_allow_http(endpoint.starts_with("http://"));
            builder = builder.with_endpoint(endpoint);
        }
        if let Some(region) = &known.region {
            builder = builder.with_region(region);
        }
        let bucket = builder.with_client_options(options).build();
        let bucket = bucket.map_err(|error| failed(format!("Cannot use {}: {}.", known.url, trouble(&error).why)))?;
        Ok(Cloud { bucket: Box::new(bucket), prefix: prefix.trim_matches('/').to_owned(), runtime })
    }

    fn path(&self, name: &str) -> Path {
        if self.prefix.is_empty() { Path::from(name) } else { Path::from(format!("{}/{name}", self.prefix)) }
    }

    fn put(&self, name: &str, bytes: &[u8], mode: PutMode) -> Result<(), Error> {
        let payload = PutPayload::from(bytes.to_vec());
        self.runtime.block_on(self.bucket.put_opts(&self.path(name), payload, mode.into())).map(drop)
    }
}

impl Objects for Cloud {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<Created, Trouble> {
        match self.put(name, bytes, PutMode::Create) {
            Ok(()) => Ok(Created::New),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(Created::Exists),
            Err(error) => Err(trouble(&error)),
        }
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), Trouble> {
        self.put(name, bytes, PutMode::Overwrite).map_err(|error| trouble(&error))
    }

    fn get(&self, name: &str, range: Option<Range<u64>>) -> Result<Option<Vec<u8>>, Trouble> {
        let options = GetOptions { range: range.map(GetRange::Bounded), ..GetOptions::default() };
        let path = self.path(name);
        let read = async { self.bucket.get_opts(&path, options).await?.bytes().await };
        match self.runtime.block_on(read) {
            Ok(bytes) => Ok(Some(bytes.to_vec())),
            Err(Error::NotFound { .. }) => Ok(None),
            // The range begins behind the end. The library has no error of its own for that.
            Err(error) if error.to_string().contains("416 Range Not Satisfiable") => Ok(Some(Vec::new())),
            Err(error) => Err(trouble(&error)),
        }
    }

    fn delete(&self, name: &str) -> Result<(), Trouble> {
        match self.runtime.block_on(self.bucket.delete(&self.path(name))) {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(trouble(&error)),
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<(String, u64)>, Trouble> {
        let path = self.path(prefix.trim_end_matches('/'));
        let listed = self.runtime.block_on(self.bucket.list(Some(&path)).try_collect::<Vec<_>>());
        let listed = listed.map_err(|error| trouble(&error))?;
        let skipped = if self.prefix.is_empty() { 0 } else { self.prefix.len() + 1 };
        let named = listed.into_iter().map(|object| {
            let name = object.location.as_ref().get(skipped..).unwrap_or_default().to_owned();
            (name, object.size)
        });
        Ok(named.collect())
    }

    fn pause(&self, attempt: u32) {
        std::thread::sleep(Duration::from_millis(200 << attempt.min(6)));
    }
}
