//! The activation lists in force.

use crate::lists::Lists;
use parking_lot::Mutex;

/// The lists of this server's settings and, during a request, those of its client, which override them.
#[derive(Default)]
pub struct ListsInForce {
    own: Mutex<Lists>,
    client: Mutex<Option<Lists>>,
}

impl ListsInForce {
    pub fn new(own: Lists) -> ListsInForce {
        ListsInForce { own: Mutex::new(own), client: Mutex::default() }
    }

    pub fn set_own(&self, own: Lists) {
        *self.own.lock() = own;
    }

    /// The client's lists are in force until the guard is dropped. One request at a time (SV1).
    pub fn use_lists_of(&self, client: &Lists) -> ClientLists<'_> {
        *self.client.lock() = Some(client.clone());
        ClientLists(self)
    }

    pub fn get(&self) -> Lists {
        self.client.lock().clone().unwrap_or_else(|| self.own.lock().clone())
    }
}

/// A client's lists are in force.
pub struct ClientLists<'a>(&'a ListsInForce);

impl Drop for ClientLists<'_> {
    fn drop(&mut self) {
        *self.0.client.lock() = None;
    }
}
