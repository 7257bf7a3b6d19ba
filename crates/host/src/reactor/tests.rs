//! The reactor's promises, with and without rings.

use super::*;
use rowen_engine::disk::PageBuf;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;
use std::time::Instant;

fn pools() -> Vec<Pool> {
    let pools = vec![
        Pool::start(1).unwrap(),
        Pool::start(3).unwrap(),
        Pool::start_without_rings(1).unwrap(),
        Pool::start_without_rings(3).unwrap(),
    ];
    assert!(!pools[2].has_rings() && !pools[3].has_rings());
    pools
}

fn pipe() -> (OwnedFd, OwnedFd) {
    rustix::pipe::pipe().unwrap()
}

/// Completes on request, from anywhere.
#[derive(Default)]
struct Signal(parking_lot::Mutex<(bool, Option<Waker>)>);

impl Signal {
    fn set(&self) {
        let waker = {
            let mut state = self.0.lock();
            state.0 = true;
            state.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
    async fn wait(&self) {
        std::future::poll_fn(|cx| {
            let mut state = self.0.lock();
            if state.0 {
                return Poll::Ready(());
            }
            state.1 = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

#[test]
fn block_on_returns_the_value_and_passes_panics_on() {
    for pool in pools() {
        assert_eq!(pool.block_on(async { 6 * 7 }), 42);
        let panicked = catch_unwind(AssertUnwindSafe(|| pool.block_on(async { panic!("on purpose") })));
        assert!(panicked.is_err());
        assert_eq!(pool.block_on(async { 1 }), 1, "the worker lives on");
    }
}

#[test]
fn tasks_stay_on_their_worker() {
    for pool in pools() {
        let workers = pool.workers();
        let (send, receive) = mpsc::channel();
        for worker in 0..workers {
            let (send, runtime) = (send.clone(), pool.runtime());
            pool.spawn_on(
                worker,
                Box::pin(async move {
                    let first = worker::current().unwrap().index;
                    runtime.sleep(Duration::from_millis(2)).await;
                    let child = send.clone();
                    runtime.spawn(
                        "child",
                        Box::pin(async move {
                            child.send((worker, worker::current().unwrap().index)).unwrap();
                        }),
                    );
                    send.send((worker, first)).unwrap();
                    send.send((worker, worker::current().unwrap().index)).unwrap();
                }),
            );
        }
        drop(send);
        let seen: Vec<_> = receive.iter().collect();
        assert_eq!(seen.len(), 3 * workers);
        assert!(seen.iter().all(|(asked, ran)| asked == ran), "{seen:?}");
    }
}

#[test]
fn sleeps_end_in_order_and_not_early() {
    for pool in pools() {
        let (send, receive) = mpsc::channel();
        for ms in [30u64, 10, 20, 10] {
            let (send, runtime) = (send.clone(), pool.runtime());
            pool.spawn_on(
                0,
                Box::pin(async move {
                    let begun = Instant::now();
                    runtime.sleep(Duration::from_millis(ms)).await;
                    assert!(begun.elapsed() >= Duration::from_millis(ms));
                    send.send(ms).unwrap();
                }),
            );
        }
        drop(send);
        assert_eq!(receive.iter().collect::<Vec<_>>(), [10, 10, 20, 30]);
    }
}

#[test]
fn wakes_from_many_threads_are_never_lost() {
    for pool in pools() {
        const ROUNDS: usize = 2000;
        let workers = pool.workers();
        // A token goes round: outside thread -> worker -> outside thread ..., each hop a cross-thread wake.
        for worker in 0..workers {
            let signals: Arc<Vec<Signal>> = Arc::new((0..ROUNDS).map(|_| Signal::default()).collect());
            let (send, receive) = mpsc::channel();
            let waiting = signals.clone();
            pool.spawn_on(
                worker,
                Box::pin(async move {
                    for (round, signal) in waiting.iter().enumerate() {
                        signal.wait().await;
                        send.send(round).unwrap();
                    }
                }),
            );
            for (round, signal) in signals.iter().enumerate() {
                // Some wakes meet a sleeping worker, some an awake one.
                if round % 3 == 0 {
                    std::thread::yield_now();
                }
                signal.set();
                let got = receive.recv_timeout(Duration::from_secs(10)).expect("a wake was lost");
                assert_eq!(got, round);
            }
        }
    }
}

#[test]
fn readable_waits_for_data_and_for_the_other_end() {
    for pool in pools() {
        let (reader, writer) = pipe();
        let fd = reader.as_raw_fd();
        let task = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(10));
            rustix::io::write(&writer, b"x").unwrap();
            writer
        });
        let begun = Instant::now();
        pool.block_on(async move { readable(fd).await }).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(9));
        let writer = task.join().unwrap();
        rustix::io::read(&reader, &mut [0u8; 1]).unwrap();
        drop(writer);
        pool.block_on(async move { readable(fd).await }).unwrap();
        let closed = pool.block_on(async { readable(1_000_000).await });
        assert_eq!(closed.unwrap_err().raw_os_error(), Some(libc::EBADF));
    }
}

#[test]
fn a_dropped_watch_is_cancelled_and_its_number_can_be_used_again() {
    for pool in pools() {
        let (reader, writer) = pipe();
        let fd = reader.as_raw_fd();
        let runtime = pool.runtime();
        for _ in 0..50 {
            let runtime = runtime.clone();
            pool.block_on(async move {
                let mut watch = Box::pin(readable(fd));
                let pause = runtime.sleep(Duration::from_micros(100));
                let mut pause = pause;
                std::future::poll_fn(|cx| {
                    assert!(watch.as_mut().poll(cx).is_pending());
                    pause.as_mut().poll(cx)
                })
                .await;
            });
        }
        rustix::io::write(&writer, b"x").unwrap();
        pool.block_on(async move { readable(fd).await }).unwrap();
    }
}

#[test]
fn dropping_the_pool_runs_what_is_queued_and_drops_what_waits() {
    for pool in pools() {
        struct Dropped(Arc<AtomicUsize>);
        impl Drop for Dropped {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let (ran, dropped) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let runtime = pool.runtime();
        for n in 0..100 {
            let ran = ran.clone();
            pool.spawn_on(
                n % pool.workers(),
                Box::pin(async move {
                    ran.fetch_add(1, Ordering::SeqCst);
                }),
            );
            let (guard, runtime) = (Dropped(dropped.clone()), runtime.clone());
            pool.spawn_on(
                n % pool.workers(),
                Box::pin(async move {
                    runtime.sleep(Duration::from_secs(3600)).await;
                    drop(guard);
                }),
            );
        }
        drop(pool);
        assert_eq!(ran.load(Ordering::SeqCst), 100);
        assert_eq!(dropped.load(Ordering::SeqCst), 100);
        // Afterwards nothing hangs and nothing runs.
        runtime.spawn("late", Box::pin(async { unreachable!("the pool has stopped") }));
    }
}

#[test]
fn replies_arrive_whole_and_give_their_buffers_back() {
    for pool in pools() {
        let (read, write) = pipe();
        let (fd, runtime) = (Arc::new(write), pool.runtime());
        let (send, receive) = mpsc::channel();
        const REPLIES: u8 = 20;
        pool.block_on(async move {
            for n in 0..REPLIES {
                let (fd, send) = (fd.clone(), send.clone());
                let reply = async move {
                    let mut buf = PageBuf::zeroed(4096);
                    buf.as_mut_slice().fill(n);
                    let (sent, buf) = Reply::new(fd, &[n; 16], Some((buf, 100))).send_with_others().await;
                    send.send((n, sent.is_ok(), buf.unwrap().as_slice()[4095])).unwrap();
                };
                runtime.spawn("reply", Box::pin(reply));
            }
        });
        let mut bytes = vec![0; usize::from(REPLIES) * 116];
        let mut file = std::fs::File::from(read);
        std::io::Read::read_exact(&mut file, &mut bytes).unwrap();
        let mut seen: Vec<u8> = bytes.chunks(116).map(|reply| reply[0]).collect();
        assert!(bytes.chunks(116).all(|reply| reply.iter().all(|byte| *byte == reply[0])), "whole replies");
        seen.sort_unstable();
        assert_eq!(seen, (0..REPLIES).collect::<Vec<_>>(), "each once");
        let mut answers: Vec<_> = (0..REPLIES).map(|_| receive.recv().unwrap()).collect();
        answers.sort_unstable();
        assert!(answers.iter().all(|(n, sent, byte)| *sent && byte == n));
    }
}

#[test]
fn a_reply_that_nobody_takes_is_an_error() {
    for pool in pools() {
        let (read, write) = pipe();
        drop(read);
        let (sent, buf) = pool.block_on(Reply::new(Arc::new(write), b"head", None).send_with_others());
        assert_eq!(sent.unwrap_err().raw_os_error(), Some(libc::EPIPE));
        assert!(buf.is_none());
    }
}
