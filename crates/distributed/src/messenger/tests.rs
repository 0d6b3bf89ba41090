//! A messenger whose connection fails.

use super::*;
use std::sync::mpsc::channel;

/// A connection that fails, and waits when it is ended.
struct Broken {
    rank: usize,
    /// Whether ranks have ended that cannot be left out.
    has_ended_ranks: bool,
}

fn broken<T>() -> Result<T> {
    Err(GroupError::Connection("revoked".to_owned()))
}

impl Transport for Broken {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        3
    }

    fn send(&mut self, _: usize, _: Vec<u8>) -> Result<()> {
        broken()
    }

    fn receive(&mut self) -> Result<Option<(usize, Vec<u8>)>> {
        broken()
    }

    fn is_busy(&self) -> bool {
        false
    }

    fn begin_sum(&mut self, _: Values) -> Result<()> {
        broken()
    }

    fn poll_sum(&mut self) -> Result<Option<Values>> {
        broken()
    }

    fn leave_out_ended(&mut self) -> Result<Option<Vec<usize>>> {
        if self.has_ended_ranks {
            broken()
        } else {
            Ok(None)
        }
    }

    fn disconnect(&mut self) {
        panic!("ranks have been lost");
    }

    fn abort(&mut self) {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

#[test]
fn a_rank_whose_connection_fails_leaves_soon() {
    for rank in [0, 1] {
        for has_ended_ranks in [false, true] {
            let (commands, received) = channel();
            let (answer, replies) = channel();
            let timing = Timing::with_silence(Duration::from_millis(200));
            let transport = Box::new(Broken {
                rank,
                has_ended_ranks,
            });
            std::thread::spawn(move || {
                Messenger::new(transport, timing, received, answer).run();
            });
            let ask = |command| {
                commands.send(command).expect("it runs");
                let reply = replies.recv_timeout(Duration::from_secs(20));
                assert!(
                    reply.expect("it answers").is_err(),
                    "{rank} {has_ended_ranks}"
                );
            };
            ask(Command::Sum(Values::Single(vec![1.0])));
            ask(Command::Leave);
        }
    }
}
