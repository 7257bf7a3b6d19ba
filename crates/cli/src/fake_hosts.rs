//! Other hosts, and streams between them, in the tests of commands: the groups of all hosts are those of one world in memory.

use crate::backend::{Answer, Pipe, Piped, Said, Where};
use crate::console::Console;
use crate::fake::Fake;

/// What ssh says when a connection ends.
const LOST: &str = "client_loop: send disconnect: Broken pipe\n";

impl Fake {
    /// Runs a command where it is said. A host that is not there does not answer.
    pub fn run_at(&mut self, at: &Where, words: &[String], input: Option<&[u8]>) -> Answer<Said> {
        let (said, out) = self.bytes_at(at, words, input)?;
        Ok(Said { out: String::from_utf8_lossy(&out).into_owned(), ..said })
    }

    fn bytes_at(&mut self, at: &Where, words: &[String], input: Option<&[u8]>) -> Answer<(Said, Vec<u8>)> {
        let mut words = words.to_vec();
        if let Where::There { host, .. } = at {
            self.ran_there.push(format!("{host}: {}", words.join(" ")));
            match self.hosts.get(host.as_str()) {
                None => {
                    let err = format!("ssh: connect to host {host} port 22: No route to host\n");
                    return Ok((Said { code: 255, err, out: String::new() }, Vec::new()));
                }
                Some(Some(allowed)) => {
                    self.ssh_command = Some(format!("rowen {}", words.join(" ")));
                    words = ["receive", "--restrict", allowed].map(str::to_owned).to_vec();
                }
                Some(None) => {}
            }
        }
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let mut input = input;
        let answers = input.as_mut().map(|input| input as &mut dyn std::io::BufRead);
        let code = crate::run(self, Console::new(&mut out, &mut err, answers), "rowen", &words);
        self.ssh_command = None;
        Ok((Said { code, out: String::new(), err: String::from_utf8_lossy(&err).into_owned() }, out))
    }

    /// A stream passes, or the first part of it.
    pub fn passes(&mut self, pipe: &Pipe<'_>, tell: &mut dyn FnMut(u64)) -> Answer<Piped> {
        let (sent, stream) = self.bytes_at(pipe.from.0, pipe.from.1, None)?;
        let cut = if self.cuts.is_empty() { None } else { Some(self.cuts.remove(0)) };
        let passed = &stream[..stream.len().min(cut.unwrap_or(usize::MAX))];
        tell(passed.len() as u64);
        let (received, out) = self.bytes_at(pipe.to.0, pipe.to.1, Some(passed))?;
        let mut received = Said { out: String::from_utf8_lossy(&out).into_owned(), ..received };
        let is_cut = passed.len() < stream.len();
        if is_cut && matches!(pipe.to.0, Where::There { .. }) {
            received = Said { code: 255, err: LOST.to_owned(), out: String::new() };
        }
        Ok(Piped { bytes: passed.len() as u64, is_cut, sent, received })
    }
}
