//! How long commands take, from their start to their end, in a group with thousands of volumes: most of them inactive, as
//! on a host of containers, and with some hundred active ones.

use crate::commands::World;
use crate::report::{Asked, Row};
use crate::world::{Bench, GIB, Lab, Result, text};
use rowen_engine::group::{Attributes, Config, FullPolicy, Group, NewVolume, VolumeKind};
use rowen_engine::units::{Uuid, VolumeId};
use std::sync::Arc;
use std::time::Instant;

/// The pool that all volumes are in.
const POOL: &str = "pool";
/// One in this many volumes is an image. The others are made from images or from each other.
const FAMILY: u64 = 10;
/// Snapshots made in one step while the group is prepared.
const TOGETHER: u64 = 500;

pub fn commands(bench: &Bench) -> Result {
    let sizes: [(u64, f64); 2] =
        if bench.settings.quick { [(100, 20.0), (1000, 20.0)] } else { [(1000, 20.0), (10_000, 50.0)] };
    for (at, (volumes, most)) in sizes.into_iter().enumerate() {
        with_volumes(bench, volumes, most, at as f64 / 2.0)?;
    }
    Ok(())
}

fn with_volumes(bench: &Bench, volumes: u64, most: f64, part: f64) -> Result {
    let times = if bench.settings.quick { 7 } else { 21 };
    let active = if bench.settings.quick { 10 } else { 200 };
    let pv = bench.sparse("pv", 200 * GIB)?;
    let path = pv.path.to_str().ok_or("the directory's name is no text")?;
    let world = World::new(bench, "commands")?;
    let group = world.group.clone();
    world.run(&["vgcreate", "-y", &group, path])?;
    world.run(&["stop", &group])?;
    bench.step("a group with many volumes", part);
    populate(bench, &pv.path, volumes)?;

    let begun = Instant::now();
    world.run(&["lvs", "--noheadings", "-o", "lv_size", &format!("{group}/v1")])?;
    let mut start = Row::new(
        "commands_start",
        format!("the first command, which starts the server: {volumes} volumes"),
        Asked::Nothing,
        "ms",
    );
    start.values.push(begun.elapsed().as_secs_f64() * 1e3);
    bench.add(start);

    measure(bench, &world, volumes, most, times, "", part + 0.1)?;
    for n in 0..active {
        bench.step("active volumes", part + 0.2);
        world.run(&["lvchange", "-ay", "-K", &format!("{group}/v{}", n + 1)])?;
    }
    measure(bench, &world, volumes, most, times, &format!(", {active} of them active"), part + 0.3)?;
    let mut memory = Row::new(
        "commands_memory",
        format!("memory of the server: {volumes} volumes, {active} of them active"),
        Asked::Nothing,
        "MiB",
    );
    memory.values.push(world.server_memory()? / 1024.0);
    bench.add(memory);
    Ok(())
}

/// Times each command, in turn with the others.
fn measure(bench: &Bench, world: &World<'_>, volumes: u64, most: f64, times: usize, how: &str, part: f64) -> Result {
    let group = &world.group;
    let row = |name, command: &str| {
        let what =
            format!("`{command}`, end to end (/ mean processor time, the server's included): {volumes} volumes{how}");
        Row { side_unit: "ms", ..Row::new(name, what, Asked::AtMost(most), "ms") }
    };
    let mut rows = [
        row("commands_lvs", "lvs VG"),
        row("commands_lvs_one", "lvs VG/LV"),
        row("commands_snapshot", "lvcreate -s"),
        row("commands_remove", "lvremove"),
    ];
    let mut spent = [0.0; 4];
    for n in 0..times {
        bench.step("commands", part);
        let (origin, snapshot) = (format!("{group}/v{}", n + 1), format!("{group}/t{n}"));
        let name = format!("t{n}");
        let lines: [&[&str]; 4] = [
            &["lvs", group],
            &["lvs", "--noheadings", "-o", "lv_attr,lv_size", &origin],
            &["lvcreate", "-y", "-s", "-n", &name, &origin],
            &["lvremove", "-f", &snapshot],
        ];
        for (at, (row, line)) in rows.iter_mut().zip(lines).enumerate() {
            let (took, on_processors) = world.time(line)?;
            row.values.push(took);
            spent[at] += on_processors / times as f64;
        }
    }
    for (mut row, spent) in rows.into_iter().zip(spent) {
        row.sides.push((row.median(), spent));
        bench.add(row);
    }
    Ok(())
}

/// Makes the volumes in this process, which a command for each would take longer for.
fn populate(bench: &Bench, path: &std::path::Path, volumes: u64) -> Result {
    let disks = bench.disks(path)?;
    let runtime = bench.pool.runtime();
    let opened = bench.block_on(async move { Group::open(disks, runtime, Config::default()).await });
    let lab = Lab::of(opened.map_err(text)?);
    let made = make(bench, &lab, volumes);
    // Also when that failed: the group's disks are held until it is closed.
    lab.close(bench).and(made)
}

fn make(bench: &Bench, lab: &Lab, volumes: u64) -> Result {
    let attributes = Attributes { pool: POOL.to_owned(), created: 1, skip_activation: true, ..Attributes::default() };
    let volume = |name: String, blocks: u64, n: u64| NewVolume {
        name,
        uuid: Uuid(u128::from(n + 1).to_be_bytes()),
        kind: VolumeKind::Thin,
        blocks,
        sector: 512,
        chunk_blocks: 16,
        full: FullPolicy::Hold,
        attributes: attributes.clone(),
    };
    let images = (volumes / FAMILY).max(1);
    let specs: Vec<NewVolume> = std::iter::once(volume(POOL.to_owned(), 40 << 18, 0))
        .chain((1..=images).map(|n| volume(format!("v{n}"), 1 << 18, n)))
        .collect();
    let group = lab.group.clone();
    let made = bench.block_on(async move {
        let mut made = Vec::new();
        for spec in specs {
            made.push(group.create_volume(spec).await?);
        }
        Ok::<Vec<VolumeId>, rowen_engine::error::Error>(made)
    });
    let mut made = made.map_err(text)?.split_off(1);
    while (made.len() as u64) < volumes {
        let first = made.len() as u64 + 1;
        let count = TOGETHER.min(volumes + 1 - first).min(made.len() as u64);
        // The youngest first: chains of snapshots as well as many of one origin.
        let specs: Vec<_> = made
            .iter()
            .rev()
            .take(count as usize)
            .zip(first..)
            .map(|(origin, n)| {
                let mut spec = lab.new_snapshot(*origin, crate::redirect::CHUNK);
                (spec.name, spec.attributes) = (format!("v{n}"), attributes.clone());
                spec
            })
            .collect();
        let group: Arc<Group> = lab.group.clone();
        made.extend(bench.block_on(async move { group.snapshot(&specs).await }).map_err(text)?);
    }
    Ok(())
}
