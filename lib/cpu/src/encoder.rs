//! A transformer encoder with pre-layer normalisation.

use std::ops::Range;
use std::sync::atomic::AtomicUsize;

use crate::aligned::{Aligned, OutOfMemory};
use crate::amx::SIDE;
use crate::attention::{AttentionHead, Scratch, attention, strips};
use crate::linear::MOST_AMX_ROWS;
use crate::rope::Turns;
use crate::rows;
use crate::team::{Barrier, next_item};
use crate::{
    Collector, Converted, Dtype, Epilogue, ForwardError, Isa, LayerNorm, Readout, Rotations,
    RowsMut, Weights,
};

/// The parameters of a layer.
#[derive(Debug)]
pub struct Layer {
    /// Applied before attention.
    pub attention_norm: LayerNorm,
    /// Queries, keys and values: `(3·hidden, hidden)`. Channels of queries and keys that are rotated together are neighbours.
    pub qkv: Weights,
    /// Applied to the queries, and to the keys, before their rotation.
    pub query_key_norms: Option<[LayerNorm; 2]>,
    /// Rotary frequencies, `(head_dim/2)`; empty without rotation.
    pub inv_freq: Vec<f32>,
    /// After attention: `(hidden, hidden)`.
    pub out: Weights,
    /// Applied before the feed-forward network.
    pub ffn_norm: LayerNorm,
    /// Input of the feed-forward network, with GELU or [gated](Weights::gated): `(intermediate, hidden)`.
    pub up: Weights,
    /// Output of the feed-forward network: `(hidden, intermediate)`.
    pub down: Weights,
    /// The factor of the outputs of both branches when they are added to the residual stream.
    pub branch_scale: f32,
}

/// Working memory that batches reuse.
#[derive(Debug, Default)]
pub struct Encoder {
    /// One for each set of frequencies. Published checkpoints have one set.
    rotations: Vec<Rotations>,
    positions: Vec<u32>,
    /// `(tokens, 3·hidden)`
    qkv: Aligned,
    /// The same rounded, in strips.
    strips: Aligned,
    /// `(tokens, hidden)`
    mixed: Aligned,
    /// The memory of each thread.
    thread_scratch: Vec<ThreadScratch>,
}

/// Working memory of a thread.
#[derive(Debug, Default)]
struct ThreadScratch {
    /// `(rows of a block, hidden)`
    normed: Aligned,
    /// `(rows of a block, intermediate)`, or queries, keys and values.
    wide: Aligned,
    converted: Converted,
    attention: Scratch,
}

/// The most rows that pass through the dense layers together, so that intermediate values stay in the cache; by tiles of 32 it is
/// [`MOST_AMX_ROWS`].
const BLOCK: usize = 192;
/// The least rows of a block by tiles of 32, if there are enough for each thread.
const LEAST_BLOCK: usize = 96;
/// The least work items for each thread; with fewer, blocks and heads are made smaller.
const PIECES: usize = 4;
/// The least queries of a work item: with fewer, repeated packing of the keys costs more time than it saves.
const QUERIES: usize = 96;
/// The most heads of a short sequence in a work item. Each head prefetches the next, which is its neighbour in memory.
const HEADS: usize = 5;

/// Divides rows into blocks of whole tiles of so many rows: equally many for each thread, and of nearly equal size.
fn blocks(tokens: usize, threads: usize, tile: usize) -> Vec<Range<usize>> {
    let tiles = tokens.div_ceil(tile);
    // A block reads all weights, which takes longer than a product of few rows by tiles of 32.
    let (least, most) = if tile == SIDE {
        (LEAST_BLOCK / tile, MOST_AMX_ROWS / tile)
    } else {
        (1, BLOCK / tile)
    };
    let pieces = (tiles / (threads * least)).clamp(1, PIECES);
    let needed = tiles.div_ceil(most).max(threads * pieces);
    let count = needed.next_multiple_of(threads).min(tiles);
    let edge = |block: usize| (tiles * block / count * tile).min(tokens);
    (0..count)
        .map(|block| edge(block)..edge(block + 1))
        .collect()
}

/// Attention of some queries of some heads of a sequence.
#[derive(Debug, PartialEq, Eq)]
struct Piece {
    sequence: Range<usize>,
    heads: Range<usize>,
    /// Rows of the sequence, counted from its first.
    queries: Range<usize>,
}

impl Piece {
    fn cost(&self) -> usize {
        self.sequence.len() * self.queries.len() * self.heads.len()
    }
}

/// Divides the attention of a layer into pieces, the most expensive first.
fn attentions(sequences: &[Range<usize>], heads: usize, threads: usize) -> Vec<Piece> {
    let total: usize = sequences
        .iter()
        .map(|sequence| sequence.len().pow(2) * heads)
        .sum();
    let most = total / (threads * PIECES);
    let mut pieces = Vec::new();
    for sequence in sequences {
        let length = sequence.len();
        let queries = (most / length)
            .max(QUERIES)
            .next_multiple_of(SIDE)
            .min(length);
        let together = (most / length.pow(2)).clamp(1, HEADS);
        for head in (0..heads).step_by(together) {
            for first in (0..length).step_by(queries) {
                pieces.push(Piece {
                    sequence: sequence.clone(),
                    heads: head..heads.min(head + together),
                    queries: first..length.min(first + queries),
                });
            }
        }
    }
    pieces.sort_by_key(|piece| std::cmp::Reverse(piece.cost()));
    pieces
}

/// Returns the type of attention in a layer.
fn attention_dtype(layer: &Layer, in_f32: bool, readout: &Readout) -> Dtype {
    if layer.qkv.dtype() != Dtype::F32 && !in_f32 && readout.isa.attends_in_bf16() {
        Dtype::Bf16
    } else {
        Dtype::F32
    }
}

/// Returns a matrix of inputs of `weights` in `memory`.
fn rows_for<'a>(
    weights: &Weights,
    in_f32: bool,
    memory: &'a mut [f32],
    rows: usize,
) -> RowsMut<'a> {
    let inputs = weights.inputs();
    if weights.take_tiles(in_f32) {
        RowsMut::tiles(memory, rows, inputs)
    } else {
        RowsMut::new(&mut memory[..rows * inputs], inputs)
    }
}

impl Encoder {
    /// Applies layers, of which the first is number `first`, to `x`, `(tokens, hidden)`, in place. With `in_f32`, bfloat16 weights are
    /// widened and all products are in f32; int8 weights do not support it. `collector` has the sequences, and sees the output of
    /// each layer.
    pub fn forward(
        &mut self,
        x: &mut [f32],
        first: usize,
        layers: &[Layer],
        in_f32: bool,
        collector: &mut Collector<'_>,
    ) -> Result<(), ForwardError> {
        let (readout, sequences) = (collector.readout, collector.sequences);
        let (Some(last), Some(layer)) = (sequences.last(), layers.first()) else {
            return Ok(());
        };
        let (tokens, threads) = (last.end, collector.threads.get());
        let hidden = x.len() / tokens;
        let blocks = blocks(tokens, threads, layer.qkv.tile_rows());
        let rows = blocks.iter().map(Range::len).max().unwrap_or(0);
        let in_f32 = in_f32 && layer.qkv.dtype() != Dtype::Int8;
        let longest = sequences.iter().map(Range::len).max().unwrap_or(0);
        self.prepare(layers, sequences, hidden, longest)?;
        let dim = hidden / readout.heads;
        let dtype = attention_dtype(layer, in_f32, readout);
        let in_strips = dtype == Dtype::Bf16 && readout.isa == Isa::Amx;
        // Else each thread has room for those of its rows.
        let shares_values = !in_strips || collector.sees_attention();
        if shares_values {
            self.qkv.grow(tokens * 3 * hidden)?;
        }
        if in_strips {
            let room = rows::strips_room(tokens, strips::width(hidden, dim));
            self.strips.grow(room)?;
        }
        if self.thread_scratch.len() < threads {
            self.thread_scratch
                .resize_with(threads, ThreadScratch::default);
        }
        for scratch in &mut self.thread_scratch[..threads] {
            scratch.converted.in_f32 = in_f32;
            scratch.prepare(layers, rows, hidden)?;
            scratch.attention.grow(longest, hidden / readout.heads)?;
        }
        let Self {
            rotations,
            positions,
            qkv,
            strips,
            mixed,
            thread_scratch,
        } = self;
        let pass = ForwardPass {
            readout,
            first,
            layers,
            hidden,
            in_f32,
            x: RowsMut::new(x, hidden),
            dtype,
            qkv: shares_values.then(|| RowsMut::new(&mut qkv[..tokens * 3 * hidden], 3 * hidden)),
            strips: in_strips.then(|| RowsMut::strips(strips, tokens, strips::width(hidden, dim))),
            mixed: rows_for(&layer.out, dtype == Dtype::F32, mixed, tokens),
            positions,
            rotations,
            blocks,
            attentions: attentions(sequences, readout.heads, threads),
            phases: (0..=2 * layers.len())
                .map(|_| AtomicUsize::new(0))
                .collect(),
            barrier: Barrier::default(),
        };
        let (own, others) = thread_scratch.split_at_mut(1);
        std::thread::scope(|scope| {
            pass.barrier.guard(|| {
                let mut started = 0;
                for scratch in &mut others[..threads - 1] {
                    // If the system refuses a thread, the existing ones do the work.
                    let thread = std::thread::Builder::new().name("kernels".to_owned());
                    let follow = || pass.barrier.guard(|| pass.follow(scratch));
                    let Ok(_) = thread.spawn_scoped(scope, follow) else {
                        break;
                    };
                    started += 1;
                }
                pass.lead(started, &mut own[0], collector)
            })
        })
    }

    /// Grows the state of a batch, and completes the rotations.
    fn prepare(
        &mut self,
        layers: &[Layer],
        sequences: &[Range<usize>],
        hidden: usize,
        longest: usize,
    ) -> Result<(), OutOfMemory> {
        let tokens = sequences.last().map_or(0, |last| last.end);
        self.positions.clear();
        for sequence in sequences {
            self.positions.extend(0..sequence.len() as u32);
        }
        for layer in layers.iter().filter(|layer| !layer.inv_freq.is_empty()) {
            let known = self
                .rotations
                .iter_mut()
                .find(|known| known.are_of(&layer.inv_freq));
            match known {
                Some(known) if known.positions() >= longest => {}
                Some(known) => *known = Rotations::new(&layer.inv_freq, longest),
                None => self
                    .rotations
                    .push(Rotations::new(&layer.inv_freq, longest)),
            }
        }
        self.mixed.grow(rows::room(tokens, hidden))
    }
}

impl ThreadScratch {
    /// Grows to blocks of `rows`.
    fn prepare(&mut self, layers: &[Layer], rows: usize, hidden: usize) -> Result<(), OutOfMemory> {
        let wide = layers.iter().map(|layer| layer.up.outputs()).max();
        self.normed.grow(rows::room(rows, hidden))?;
        let wide = wide.unwrap_or(0).max(3 * hidden);
        self.wide.grow(rows::room(rows, wide))?;
        for layer in layers {
            for weights in [&layer.qkv, &layer.out, &layer.up, &layer.down] {
                self.converted.grow(weights, rows)?;
            }
        }
        Ok(())
    }
}

/// The state that the threads of a batch share.
struct ForwardPass<'a> {
    readout: &'a Readout,
    /// The number of layers before these.
    first: usize,
    layers: &'a [Layer],
    hidden: usize,
    in_f32: bool,
    x: RowsMut<'a>,
    dtype: Dtype,
    /// What attention or the collector reads.
    qkv: Option<RowsMut<'a>>,
    /// What attention reads in tiles.
    strips: Option<RowsMut<'a>>,
    mixed: RowsMut<'a>,
    positions: &'a [u32],
    rotations: &'a [Rotations],
    blocks: Vec<Range<usize>>,
    attentions: Vec<Piece>,
    /// The pieces of each phase that are taken. Dense layers and attention alternate.
    phases: Vec<AtomicUsize>,
    barrier: Barrier,
}

impl ForwardPass<'_> {
    fn lead(
        &self,
        others: usize,
        scratch: &mut ThreadScratch,
        collector: &mut Collector<'_>,
    ) -> Result<(), ForwardError> {
        let depth = self.layers.len();
        for layer in 0..=depth {
            self.dense(layer, scratch);
            self.barrier.lead(others, || -> Result<(), ForwardError> {
                // All other threads wait.
                let x = self.x.as_rows().values();
                if layer > 0 {
                    collector.hidden(self.first + layer, x)?;
                }
                if let Some(qkv) = self.qkv.as_ref().filter(|_| layer < depth) {
                    collector.attention(qkv.as_rows().values())?;
                }
                Ok(())
            })?;
            if layer < depth {
                self.attend(layer, scratch);
                self.barrier.lead(others, || Ok::<_, ForwardError>(()))?;
            }
        }
        Ok(())
    }

    fn follow(&self, scratch: &mut ThreadScratch) {
        for layer in 0..=self.layers.len() {
            self.dense(layer, scratch);
            if !self.barrier.pass() || layer == self.layers.len() {
                return;
            }
            self.attend(layer, scratch);
            self.barrier.pass();
        }
    }

    /// Computes the dense layers between two attentions: the rest of the layer before, and the inputs of attention.
    fn dense(&self, layer: usize, scratch: &mut ThreadScratch) {
        let (isa, hidden) = (self.readout.isa, self.hidden);
        while let Some(piece) = next_item(&self.phases[2 * layer], self.blocks.len()) {
            let rows = self.blocks[piece].clone();
            // SAFETY: each block has one thread, and attention, which reads other rows, runs in another phase.
            let (mut x, mixed) =
                unsafe { (self.x.part_mut(rows.clone()), self.mixed.part(rows.clone())) };
            let ThreadScratch {
                normed,
                wide,
                converted,
                ..
            } = scratch;
            if let Some(before) = layer.checked_sub(1) {
                let Layer {
                    out,
                    ffn_norm,
                    up,
                    down,
                    branch_scale,
                    ..
                } = &self.layers[before];
                let add = Epilogue::Add(*branch_scale);
                out.apply(mixed, &mut x, add, Some(converted));
                let mut normed = rows_for(up, self.in_f32, normed, rows.len());
                ffn_norm.apply(isa, x.as_rows(), &mut normed);
                let into = &mut rows_for(down, self.in_f32, wide, rows.len());
                let activation = if up.is_gated() {
                    Epilogue::SwiGlu
                } else {
                    Epilogue::Gelu
                };
                up.apply(normed.as_rows(), into, activation, Some(converted));
                down.apply(into.as_rows(), &mut x, add, Some(converted));
            }
            let Some(next) = self.layers.get(layer) else {
                continue;
            };
            let mut normed = rows_for(&next.qkv, self.in_f32, normed, rows.len());
            next.attention_norm.apply(isa, x.as_rows(), &mut normed);
            let rotations = (!next.inv_freq.is_empty()).then(|| {
                let mut known = self.rotations.iter();
                let rotations = known.find(|known| known.are_of(&next.inv_freq));
                rotations.expect("prepared for every layer")
            });
            let mut turns = Turns {
                rotations,
                positions: &self.positions[rows.clone()],
                dim: hidden / self.readout.heads,
                hidden,
            };
            // SAFETY: as above.
            let [qkv, strips] = [&self.qkv, &self.strips].map(|all| {
                all.as_ref()
                    .map(|all| unsafe { all.part_mut(rows.clone()) })
            });
            let product = &next.qkv;
            let mut strips = match strips {
                Some(mut strips)
                    if qkv.is_none()
                        && next.query_key_norms.is_none()
                        && turns.dim.is_multiple_of(SIDE) =>
                {
                    let attend = Epilogue::Attend(turns);
                    product.apply(normed.as_rows(), &mut strips, attend, Some(converted));
                    continue;
                }
                strips => strips,
            };
            let width = 3 * hidden;
            let mut qkv =
                qkv.unwrap_or_else(|| RowsMut::new(&mut wide[..rows.len() * width], width));
            product.apply(normed.as_rows(), &mut qkv, Epilogue::Store, Some(converted));
            for (norm, column) in next.query_key_norms.iter().flatten().zip([0, hidden]) {
                norm.apply_in_place(isa, &mut qkv, column);
            }
            if let Some(rotations) = turns.rotations.take() {
                rotations.apply(isa, &mut qkv, turns.positions);
            }
            if let Some(strips) = &mut strips {
                strips::fill(isa, qkv.as_rows(), turns, strips);
            }
        }
    }

    fn attend(&self, layer: usize, scratch: &mut ThreadScratch) {
        let head_dim = self.hidden / self.readout.heads;
        let qkv = self.strips.as_ref().or(self.qkv.as_ref());
        let qkv = qkv.expect("one of them is there");
        while let Some(piece) = next_item(&self.phases[2 * layer + 1], self.attentions.len()) {
            let Piece {
                sequence,
                heads,
                queries,
            } = &self.attentions[piece];
            let rows = sequence.start + queries.start..sequence.start + queries.end;
            // SAFETY: nothing writes queries, keys and values in this phase, and each piece has its own rows and channels of the
            // mix.
            let (qkv, mut mixed) =
                unsafe { (qkv.part(sequence.clone()), self.mixed.part_mut(rows)) };
            for number in heads.clone() {
                let head = AttentionHead {
                    number,
                    dim: head_dim,
                };
                attention(
                    self.readout.isa,
                    self.dtype,
                    qkv,
                    head,
                    queries.clone(),
                    &mut mixed,
                    &mut scratch.attention,
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_all_rows_and_are_nearly_equal() {
        for tokens in [1, 11, 12, 13, 500, 3455, 4096, 32_768] {
            for (threads, tile) in [(1, 12), (2, 32), (3, 12), (16, 32), (128, 12)] {
                let blocks = blocks(tokens, threads, tile);
                assert_eq!((blocks[0].start, blocks[blocks.len() - 1].end), (0, tokens));
                assert!(blocks.windows(2).all(|pair| pair[0].end == pair[1].start));
                let sizes = || blocks.iter().map(Range::len);
                let (least, most) = (sizes().min().unwrap(), sizes().max().unwrap());
                assert!(least > 0 && most <= BLOCK && most - least < 2 * tile);
                let fills = tokens.div_ceil(tile) >= threads * PIECES;
                assert!(!fills || blocks.len().is_multiple_of(threads));
            }
        }
    }

    #[test]
    fn pieces_cover_every_query_of_each_head() {
        let sequences = [0..52, 52..104, 104..1104];
        for threads in [1, 2, 64] {
            let pieces = attentions(&sequences, 7, threads);
            for sequence in &sequences {
                for head in 0..7 {
                    let mut own: Vec<Range<usize>> = pieces
                        .iter()
                        .filter(|piece| piece.sequence == *sequence && piece.heads.contains(&head))
                        .map(|piece| piece.queries.clone())
                        .collect();
                    own.sort_by_key(|queries| queries.start);
                    let end = own.into_iter().fold(0, |end, queries| {
                        assert_eq!(queries.start, end);
                        queries.end
                    });
                    assert_eq!(end, sequence.len());
                }
            }
            assert!(pieces.is_sorted_by_key(|piece| std::cmp::Reverse(piece.cost())));
        }
    }
}
