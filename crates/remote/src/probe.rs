//! Finds out whether a store keeps the promise that everything is built on: of several creates of one name, one wins (SO1).

use rowen_transfer::store::{Created, Objects, Trouble};

const AT_ONCE: usize = 32;
const ROUNDS: usize = 8;

/// None: it keeps the promise. Else what it did.
pub fn probe(objects: &dyn Objects, nonce: &str) -> Result<Option<String>, Trouble> {
    let mut fault = None;
    for round in 0..ROUNDS {
        let name = format!("probe/{nonce}-{round}");
        let outcome = race(objects, &name);
        objects.delete(&name)?;
        fault = outcome?;
        if fault.is_some() {
            break;
        }
    }
    Ok(fault)
}

fn race(objects: &dyn Objects, name: &str) -> Result<Option<String>, Trouble> {
    let answers: Vec<_> = std::thread::scope(|scope| {
        let create = |by: usize| move || (by, objects.create(name, format!("{name} by {by}").as_bytes()));
        let started: Vec<_> = (0..AT_ONCE).map(|by| scope.spawn(create(by))).collect();
        started.into_iter().map(|thread| thread.join().expect("it does not panic")).collect()
    });
    let winners: Vec<usize> =
        answers.iter().filter(|(_, answer)| matches!(answer, Ok(Created::New))).map(|(by, _)| *by).collect();
    let failed = answers.iter().find_map(|(_, answer)| answer.as_ref().err());
    let there = objects.get(name, None)?;
    if winners.len() > 1 {
        return Ok(Some(format!("of {AT_ONCE} programs that created one object at once, {} succeeded", winners.len())));
    }
    let Some(there) = there else {
        return match failed {
            Some(trouble) => Err(trouble.clone()),
            None => Ok(Some("it said that an object exists, which does not".into())),
        };
    };
    if let [winner] = &winners[..]
        && there != format!("{name} by {winner}").as_bytes()
    {
        return Ok(Some("an object has not the contents of the program that created it".into()));
    }
    // Nobody else may win now, one after the other.
    match objects.create(name, b"later")? {
        Created::New => Ok(Some("it created an object that existed".into())),
        Created::Exists if objects.get(name, None)? == Some(there) => Ok(None),
        Created::Exists => Ok(Some("it said that an object exists, and overwrote it".into())),
    }
}
