//! Files that bypass the page cache: the best plain writer, and the limit of the disk.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;

use nix::fcntl::{FallocateFlags, fallocate};
use nix::libc::O_DIRECT;

use femtobarn_bench::{Appends, Outcome, Random, Stopwatch};

/// Objects are written in pieces of this size.
const PIECE_BYTES: usize = 1 << 20;
/// Direct writes and reads need offsets, sizes and memory addresses that are multiples of this.
const ALIGNMENT: usize = 4096;

/// Appends objects to a file of the writer's own, whose space on disk is reserved.
pub(crate) fn append(folder: &Path, work: &Appends) -> Outcome {
    let path = folder.join(format!("w{}", work.writer));
    let file = OpenOptions::new().write(true).create(true).custom_flags(O_DIRECT).open(&path)?;
    let space = (work.bytes() as usize).next_multiple_of(ALIGNMENT);
    fallocate(&file, FallocateFlags::empty(), 0, space as i64)?;
    let mut memory = vec![0; PIECE_BYTES + ALIGNMENT];
    let piece = aligned(&mut memory, PIECE_BYTES);
    let (mut filled, mut at) = (0, 0);
    let watch = Stopwatch::start();
    for ids in work.transactions() {
        for id in ids {
            let mut object = work.pool.object(id);
            while !object.is_empty() {
                let fits = object.len().min(PIECE_BYTES - filled);
                piece[filled..filled + fits].copy_from_slice(&object[..fits]);
                (object, filled) = (&object[fits..], filled + fits);
                if filled == PIECE_BYTES {
                    file.write_all_at(piece, at)?;
                    (at, filled) = (at + PIECE_BYTES as u64, 0);
                }
            }
        }
        // The last block is written again when the next transaction has filled it.
        file.write_all_at(&piece[..filled.next_multiple_of(ALIGNMENT)], at)?;
        file.sync_data()?;
    }
    watch.report_on_disk(work.count, work.bytes(), folder)
}

/// Reads blocks at random, `depth` of them at once.
pub(crate) fn blocks(path: &Path, bytes: u64, count: u64, depth: u64) -> Outcome {
    let file = OpenOptions::new().read(true).custom_flags(O_DIRECT).open(path)?;
    let blocks = file.metadata()?.len() / bytes;
    let mut random = Random::default();
    let offsets: Vec<u64> = (0..count).map(|_| random.below(blocks) * bytes).collect();
    let watch = Stopwatch::start();
    thread::scope(|scope| {
        let of_one = offsets.chunks(count.div_ceil(depth) as usize);
        let readers: Vec<_> =
            of_one.map(|offsets| scope.spawn(|| read_blocks(&file, offsets, bytes))).collect();
        readers.into_iter().try_for_each(|reader| reader.join().expect("readers do not panic"))
    })?;
    watch.report(count, count * bytes, 0);
    Ok(())
}

fn read_blocks(file: &File, offsets: &[u64], bytes: u64) -> std::io::Result<()> {
    let mut memory = vec![0; bytes as usize + ALIGNMENT];
    let block = aligned(&mut memory, bytes as usize);
    offsets.iter().try_for_each(|offset| file.read_exact_at(block, *offset))
}

fn aligned(memory: &mut [u8], bytes: usize) -> &mut [u8] {
    let start = memory.as_ptr().align_offset(ALIGNMENT);
    &mut memory[start..start + bytes]
}
