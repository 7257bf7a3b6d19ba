//! What a push uploads: segments of blocks and of pages, under numbers of its job.

use super::entry::{Kind, Numbers};
use super::error::{Result, StoreError};
use super::log::Log;
use super::objects::{self, Objects};
use super::seal::Seal;
use super::segment::Filling;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// How many numbers a job asks for when it has none left.
const MORE: u64 = if cfg!(test) { 2 } else { 64 };

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// What the threads have done.
#[derive(Default)]
struct Done {
    waiting: usize,
    failed: Option<StoreError>,
    uploaded: u64,
}

#[derive(Default)]
struct Shared {
    done: Mutex<Done>,
    changed: Condvar,
}

/// Uploads segments, in threads of its own or at once.
pub struct Uploads<'s> {
    objects: &'s dyn Objects,
    seal: Seal,
    store: [u8; 16],
    to_threads: Option<SyncSender<Filling>>,
    shared: Arc<Shared>,
}

fn upload(objects: &dyn Objects, seal: &Seal, store: [u8; 16], segment: &Filling) -> Result<u64> {
    let name = segment.kind.name(segment.number);
    let bytes = segment.finish(seal, store);
    match objects::create(objects, &name, &bytes)? {
        None => Ok(bytes.len() as u64),
        // SO2: nobody else has this number.
        Some(_) => Err(StoreError::Broken(format!("{name} was created by somebody who had no right to its number"))),
    }
}

impl<'s> Uploads<'s> {
    /// Uploads at once, in this thread.
    pub fn inline(objects: &'s dyn Objects, seal: Seal, store: [u8; 16]) -> Uploads<'s> {
        Uploads { objects, seal, store, to_threads: None, shared: Arc::default() }
    }

    /// Uploads in this many threads, which end with `finish` or when this is dropped.
    pub fn threads<'scope>(
        objects: &'s dyn Objects,
        seal: Seal,
        store: [u8; 16],
        (scope, count): (&'scope std::thread::Scope<'scope, 's>, usize),
    ) -> Uploads<'s> {
        let mut uploads = Uploads::inline(objects, seal, store);
        let (sender, receiver) = sync_channel::<Filling>(1);
        let receiver = Arc::new(Mutex::new(receiver));
        for _ in 0..count {
            let (receiver, seal, shared) = (receiver.clone(), uploads.seal.clone(), uploads.shared.clone());
            scope.spawn(move || work(objects, &seal, store, &receiver, &shared));
        }
        uploads.to_threads = Some(sender);
        uploads
    }

    fn put(&mut self, segment: Filling) -> Result<()> {
        let Some(to) = &self.to_threads else {
            let bytes = upload(self.objects, &self.seal, self.store, &segment)?;
            lock(&self.shared.done).uploaded += bytes;
            return Ok(());
        };
        lock(&self.shared.done).waiting += 1;
        if to.send(segment).is_err() {
            return self.check().and(Err(StoreError::Refused("the threads that upload have ended".into())));
        }
        self.check()
    }

    fn check(&self) -> Result<()> {
        lock(&self.shared.done).failed.take().map_or(Ok(()), Err)
    }

    /// Waits until nothing is under way.
    fn wait(&self) -> Result<()> {
        let done = lock(&self.shared.done);
        let ended = self.shared.changed.wait_while(done, |done| done.waiting > 0);
        drop(ended);
        self.check()
    }
}

fn work(objects: &dyn Objects, seal: &Seal, store: [u8; 16], receiver: &Mutex<Receiver<Filling>>, shared: &Shared) {
    loop {
        let next = lock(receiver).recv();
        let Ok(segment) = next else { return };
        // After a failure the rest is of no use.
        let outcome = match lock(&shared.done).failed {
            Some(_) => Ok(0),
            None => Err(()),
        };
        let outcome = outcome.or_else(|()| upload(objects, seal, store, &segment));
        let mut done = lock(&shared.done);
        done.waiting -= 1;
        match outcome {
            Ok(bytes) => done.uploaded += bytes,
            Err(error) => {
                done.failed.get_or_insert(error);
            }
        }
        shared.changed.notify_all();
    }
}

/// A job of this program: its numbers, and the segments that are being filled.
pub struct Output<'l, 'a, 's> {
    pub log: &'l mut Log<'a>,
    pub job: u64,
    free: [VecDeque<Numbers>; 2],
    filling: [Option<Filling>; 2],
    uploads: Uploads<'s>,
}

fn slot(kind: Kind) -> usize {
    usize::from(kind == Kind::Map)
}

impl<'l, 'a, 's> Output<'l, 'a, 's> {
    pub fn new(log: &'l mut Log<'a>, job: u64, numbers: &[Numbers], uploads: Uploads<'s>) -> Output<'l, 'a, 's> {
        let of = |kind| numbers.iter().filter(|range| range.kind == kind).copied().collect();
        Output { log, job, free: [of(Kind::Data), of(Kind::Map)], filling: [None, None], uploads }
    }

    /// Bytes that are in the store.
    pub fn uploaded(&self) -> u64 {
        lock(&self.uploads.shared.done).uploaded
    }

    fn number(&mut self, kind: Kind) -> Result<u64> {
        let free = &mut self.free[slot(kind)];
        while free.front().is_some_and(|range| range.count == 0) {
            free.pop_front();
        }
        if free.is_empty() {
            let more = self.log.more(self.job, kind, MORE)?;
            self.free[slot(kind)].push_back(more);
        }
        let range = self.free[slot(kind)].front_mut().expect("there is one");
        let number = range.first;
        (range.first, range.count) = (number + 1, range.count - 1);
        Ok(number)
    }

    fn filling(&mut self, kind: Kind) -> Result<&mut Filling> {
        if self.filling[slot(kind)].as_ref().is_some_and(Filling::is_full) {
            self.put(kind)?;
        }
        if self.filling[slot(kind)].is_none() {
            let number = self.number(kind)?;
            self.filling[slot(kind)] = Some(Filling::new(kind, number));
        }
        Ok(self.filling[slot(kind)].as_mut().expect("it was made"))
    }

    fn put(&mut self, kind: Kind) -> Result<()> {
        match self.filling[slot(kind)].take().filter(|segment| !segment.is_empty()) {
            Some(segment) => self.uploads.put(segment),
            None => Ok(()),
        }
    }

    /// A block of the volume, which gets an address.
    pub fn block(&mut self, block: u64, bytes: &[u8]) -> Result<u64> {
        Ok(self.filling(Kind::Data)?.block(block, bytes))
    }

    pub fn zeros(&mut self, start: u64, blocks: u64) -> Result<()> {
        self.filling(Kind::Data)?.zeros(start, blocks);
        Ok(())
    }

    /// A page or a table, which gets an address.
    pub fn page(&mut self, bytes: Vec<u8>) -> Result<u64> {
        Ok(self.filling(Kind::Map)?.frame(bytes))
    }

    /// The segment that the next page will be in.
    pub fn next_page(&mut self) -> Result<u64> {
        Ok(self.filling(Kind::Map)?.number)
    }

    /// Waits until all is in the store. The log is free again.
    pub fn finish(mut self) -> Result<(&'l mut Log<'a>, u64)> {
        // A segment that only says what was zeros is of no use when the push is at its end.
        if self.filling[0].as_ref().is_some_and(|segment| !segment.has_blocks()) {
            self.filling[0] = None;
        }
        self.put(Kind::Data)?;
        self.put(Kind::Map)?;
        self.uploads.wait()?;
        let uploaded = self.uploaded();
        Ok((self.log, uploaded))
    }
}
