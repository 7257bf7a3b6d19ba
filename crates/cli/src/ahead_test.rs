use super::*;
use rowen_control::protocol::Bytes;
use rowen_engine::planted::must_be_found;
use std::time::Duration;

/// Answers with the number that a request names, the odd ones late.
fn asker() -> Asker {
    Box::new(|request, _| match request {
        Request::RenameGroup { to } => {
            let number: u64 = to.parse().unwrap();
            std::thread::sleep(Duration::from_millis(3 * (number % 2)));
            Ok(Outcome::Data(Bytes(to.into_bytes())))
        }
        _ => Err(lost()),
    })
}

fn in_order() {
    let mut ahead = Ahead::with("vg", (0..3).map(|_| asker()));
    let mut expected = 0..;
    let mut most = 0;
    let mut take = |ahead: &mut Ahead| {
        let Some(Where::With(at)) = ahead.next() else { panic!("a worker has it") };
        let (_, answer) = ahead.answered(at).unwrap();
        assert_eq!(answer.unwrap(), Outcome::Data(Bytes(expected.next().unwrap().to_string().into_bytes())));
    };
    for number in 0..40 {
        ahead.give(Request::RenameGroup { to: number.to_string() }).unwrap();
        most = most.max(ahead.under_way.len());
        while ahead.is_full() {
            take(&mut ahead);
        }
    }
    while !ahead.is_empty() {
        take(&mut ahead);
    }
    assert_eq!(most, 3);
}

/// AH1
#[test]
fn answers_come_in_the_order_of_the_requests() {
    in_order();
    must_be_found("answers_as_they_come", in_order);
}
