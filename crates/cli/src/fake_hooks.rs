//! Programs of policies that only note that they ran.

use crate::backend::{Answer, Hook, Pending, Trouble};
use rowen_control::protocol::ErrorKind;
use std::sync::{Arc, Mutex};

/// Programs of policies that ran, with the variables, and the one that fails.
#[derive(Clone, Default)]
pub struct Hooks {
    pub ran: Arc<Mutex<Vec<String>>>,
    pub failing: Arc<Mutex<Option<String>>>,
}

impl Hooks {
    pub fn later(&self, hook: Hook) -> Box<dyn Pending> {
        Box::new(LaterInMemory { hooks: self.clone(), hook })
    }

    pub fn run(&self, hook: &Hook) -> Answer<()> {
        let values: Vec<&str> = hook.variables.iter().map(|(_, value)| value.as_str()).collect();
        self.ran.lock().unwrap().push(format!("{} {}", hook.program, values.join(" ")));
        match self.failing.lock().unwrap().as_deref() == Some(hook.program.as_str()) {
            true => Err(Trouble::other(ErrorKind::Internal, format!("{} failed with exit code 1.", hook.program))),
            false => Ok(()),
        }
    }
}

struct LaterInMemory {
    hooks: Hooks,
    hook: Hook,
}

impl Pending for LaterInMemory {
    fn run(self: Box<Self>) -> Answer<()> {
        self.hooks.run(&self.hook)
    }
}
