//! Plain files: the limit of the operating system without an engine.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use memmap2::Mmap;
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};

use femtobarn_bench::{Appends, Outcome, Reads, Stopwatch, commits, sum};

/// Objects are written in pieces of this size.
const PIECE_BYTES: usize = 1 << 20;
/// Bytes written for a small transaction.
const SMALL_WRITE_BYTES: usize = 4 << 10;
/// The bytes of a file that small transactions overwrite in turn.
const PREPARED_BYTES: usize = 16 << 20;

/// Appends objects to a file of the writer's own.
pub(crate) fn append(folder: &Path, work: &Appends) -> Outcome {
    let path = folder.join(format!("w{}", work.writer));
    let mut file = File::create(&path)?;
    let mut piece = Vec::with_capacity(PIECE_BYTES + work.pool.size());
    let watch = Stopwatch::start();
    for ids in work.transactions() {
        for id in ids {
            piece.extend_from_slice(work.pool.object(id));
            if piece.len() >= PIECE_BYTES {
                file.write_all(&piece)?;
                piece.clear();
            }
        }
        file.write_all(&piece)?;
        piece.clear();
        file.sync_data()?;
    }
    watch.report_on_disk(work.count, work.bytes(), folder)
}

/// Reads objects at random by pread.
pub(crate) fn random(folder: &Path, reads: &Reads) -> Outcome {
    let file = File::open(folder.join("w0"))?;
    let mut object = vec![0; reads.size as usize];
    reads.one_by_one(|id| {
        file.read_exact_at(&mut object, id * reads.size)?;
        Ok(sum(&object))
    })
}

/// Reads objects at random from a mapping.
pub(crate) fn random_mapped(folder: &Path, reads: &Reads) -> Outcome {
    let map = mapped(&folder.join("w0"))?;
    let size = reads.size as usize;
    reads.one_by_one(|id| Ok(sum(&map[id as usize * size..][..size])))
}

/// Reads all objects by pread.
pub(crate) fn scan(folder: &Path, reads: &Reads) -> Outcome {
    let file = File::open(folder.join("w0"))?;
    let at_once = (PIECE_BYTES as u64 / reads.size).max(1);
    let mut piece = vec![0; (at_once * reads.size) as usize];
    reads.in_order(|| {
        let mut check = 0_u64;
        for first in (0..reads.objects).step_by(at_once as usize) {
            let count = at_once.min(reads.objects - first);
            let piece = &mut piece[..(count * reads.size) as usize];
            file.read_exact_at(piece, first * reads.size)?;
            for object in piece.chunks_exact(reads.size as usize) {
                check = check.wrapping_add(sum(object));
            }
        }
        Ok(check)
    })
}

/// Reads all objects from a mapping.
pub(crate) fn scan_mapped(folder: &Path, reads: &Reads) -> Outcome {
    let map = mapped(&folder.join("w0"))?;
    reads.in_order(|| {
        let objects = map.chunks_exact(reads.size as usize);
        Ok(objects.fold(0, |check: u64, object| check.wrapping_add(sum(object))))
    })
}

/// Appends 4 KB for each transaction of a group, `syncs` times, with a sync after each time.
pub(crate) fn syncs(path: &Path, seconds: f64, syncs: u64, group: u64) -> Outcome {
    let mut file = File::create(path)?;
    let piece = vec![1; SMALL_WRITE_BYTES];
    let mut left = 0;
    commits(seconds, |_| {
        // The first transaction of a group writes for all of them.
        if left == 0 {
            for _ in 0..syncs {
                for _ in 0..group {
                    file.write_all(&piece)?;
                }
                file.sync_data()?;
            }
            left = group;
        }
        left -= 1;
        Ok(())
    })
}

/// Overwrites 4 KB of a prepared file for each transaction, with a sync for each group, which then writes no inode.
pub(crate) fn syncs_in_place(path: &Path, seconds: f64, group: u64) -> Outcome {
    let file = File::create(path)?;
    file.write_all_at(&vec![1; PREPARED_BYTES], 0)?;
    file.sync_data()?;
    let piece = vec![2; SMALL_WRITE_BYTES];
    commits(seconds, |number| {
        let place = number % (PREPARED_BYTES / SMALL_WRITE_BYTES) as u64;
        file.write_all_at(&piece, place * SMALL_WRITE_BYTES as u64)?;
        if (number + 1).is_multiple_of(group) { Ok(file.sync_data()?) } else { Ok(()) }
    })
}

/// Removes a file, or all files of a folder, from the page cache; fails if more than a few pages stay.
pub(crate) fn evict(path: &Path) -> Outcome {
    if path.is_dir() {
        return path.read_dir()?.try_for_each(|entry| evict(&entry?.path()));
    }
    let file = File::open(path)?;
    file.sync_data()?;
    posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    let left = resident(&file)?;
    if left > 16 {
        Err(format!("{left} pages of {} stay in memory", path.display()).into())
    } else {
        Ok(())
    }
}

/// Evicts and reads a file, or all files of a folder, in order. The kernel then caches them in large pieces,
/// independent of how they were written.
pub(crate) fn warm(path: &Path) -> Outcome {
    if path.is_dir() {
        return path.read_dir()?.try_for_each(|entry| warm(&entry?.path()));
    }
    evict(path)?;
    std::io::copy(&mut File::open(path)?, &mut std::io::sink())?;
    Ok(())
}

/// How many pages of a file are in memory.
fn resident(file: &File) -> Outcome<usize> {
    if file.metadata()?.len() == 0 {
        return Ok(0);
    }
    // SAFETY: nothing is read through the mapping.
    let map = unsafe { Mmap::map(file)? };
    let mut pages = vec![0_u8; map.len().div_ceil(4096)];
    // SAFETY: the mapping has `map.len()` bytes, and the vector a byte for each of their pages.
    let done = unsafe {
        nix::libc::mincore(map.as_ptr().cast_mut().cast(), map.len(), pages.as_mut_ptr())
    };
    nix::errno::Errno::result(done)?;
    Ok(pages.iter().filter(|page| **page & 1 == 1).count())
}

fn mapped(path: &Path) -> Outcome<Mmap> {
    // SAFETY: no process writes to the data of benchmarks while they are read.
    Ok(unsafe { Mmap::map(&File::open(path)?)? })
}
