//! The signals that end a program of the tests.

/// SIGTERM, SIGUSR1 and SIGUSR2: blocked before any thread starts, and waited for in the main one.
pub fn block_signals() -> libc::sigset_t {
    // SAFETY: the set is initialised by sigemptyset and outlives the calls.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGTERM);
        libc::sigaddset(&mut set, libc::SIGUSR1);
        libc::sigaddset(&mut set, libc::SIGUSR2);
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        set
    }
}

/// The next of them.
pub fn wait_for_signal(set: &libc::sigset_t) -> i32 {
    let mut signal = 0;
    // SAFETY: both pointers are valid for the call.
    unsafe { libc::sigwait(set, &mut signal) };
    signal
}
