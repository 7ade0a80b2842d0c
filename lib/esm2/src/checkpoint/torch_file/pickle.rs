//! Reads the pickle of a state dictionary, a dictionary of tensors, without running it.
//!
//! Knows the instructions of Python's `pickletools` that `torch.save` uses in protocols 2 to 5. Skips everything that
//! no tensor is made of, such as `_metadata` and hooks.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use plmkit_kit::Quoted;
use safetensors::Dtype;

use super::archive::{PICKLE, Record, damaged};
use crate::checkpoint::stored_tensor::{StoredTensor, end};
use crate::checkpoint::weight_file::WeightFile;

/// The pickle of the 15B model has less than a quarter of a MiB.
const MAX_BYTES: usize = 4 << 20;

/// More values than `torch.save` keeps on the stack or in the memo for the 15B model, and more tuples and dictionaries than it makes:
/// 20 for each tensor or module.
const MAX_VALUES: usize = 1 << 19;

/// More dimensions than a weight has.
const MAX_DIMENSIONS: usize = 8;

/// Returns the tensors of the state dictionary in the pickle of a file, given its records. Checks that each tensor lies in its storage,
/// and that each storage has the size of its record.
pub(super) fn state_dictionary(
    file: &Arc<WeightFile>,
    records: &BTreeMap<String, Record>,
) -> Result<Vec<(String, StoredTensor)>, String> {
    let pickle = &file.bytes()[records[PICKLE].0.clone()];
    if pickle.len() > MAX_BYTES {
        return Err(damaged(format!(
            "expected a pickle of at most {MAX_BYTES} bytes, found {}",
            pickle.len()
        )));
    }
    let mut machine = Machine {
        file,
        records,
        rest: pickle,
        stack: Vec::new(),
        memo: HashMap::new(),
        items: Vec::new(),
        tensors: Vec::new(),
        refusal: None,
    };
    loop {
        let position = pickle.len() - machine.rest.len();
        match machine.step() {
            Some(false) => {}
            Some(true) => return machine.into_tensors(),
            None => {
                return Err(machine.refusal.unwrap_or_else(|| {
                    damaged(format!(
                        "data.pkl is not that of a dictionary of tensors from byte {position} on"
                    ))
                }));
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Value<'a> {
    Mark,
    /// Not part of any tensor.
    Other,
    None,
    Number(isize),
    Text(&'a str),
    /// The name of a known class or function.
    Class(&'a str),
    /// An array of values that tensors lie in: their type, the place of the first in the file, and their number.
    Storage(Dtype, usize, usize),
    /// Index in [`Machine::tensors`].
    Tensor(usize),
    /// Index in [`Machine::items`].
    Tuple(usize),
    /// Index in [`Machine::items`]: a dictionary can change after it was put into another.
    Dictionary(usize),
}

/// The stack machine that runs pickles, reduced to dictionaries of tensors.
struct Machine<'a> {
    file: &'a Arc<WeightFile>,
    records: &'a BTreeMap<String, Record>,
    /// The instructions that follow.
    rest: &'a [u8],
    stack: Vec<Value<'a>>,
    memo: HashMap<usize, Value<'a>>,
    /// The values of each tuple, and alternating keys and values of each dictionary.
    items: Vec<Vec<Value<'a>>>,
    /// Tensors; for one that does not lie in its storage, the values of that.
    tensors: Vec<Result<StoredTensor, usize>>,
    /// Why something was refused.
    refusal: Option<String>,
}

impl<'a> Machine<'a> {
    /// Executes the next instruction. Returns whether it was the last; `None` for damage or a refusal.
    fn step(&mut self) -> Option<bool> {
        let instruction = self.slice(1)?[0];
        if instruction == b'.' {
            return Some(true);
        }
        self.execute(instruction)?;
        let values = self.stack.len() + self.memo.len() + self.items.len() + self.tensors.len();
        (values <= MAX_VALUES).then_some(false)
    }

    /// Executes an instruction; `None` for one that is unknown or does not fit.
    fn execute(&mut self, instruction: u8) -> Option<()> {
        let value = match instruction {
            // PROTO, FRAME
            0x80 => return self.number(1).filter(|version| *version <= 5).map(drop),
            0x95 => return self.slice(8).map(drop),
            b'(' => Value::Mark,
            // BINPUT, LONG_BINPUT, MEMOIZE
            b'q' => return self.number(1).and_then(|key| self.memoize(key)),
            b'r' => return self.number(4).and_then(|key| self.memoize(key)),
            0x94 => return self.memoize(self.memo.len()),
            // APPEND, APPENDS: lists are skipped.
            b'a' => return self.stack.pop().map(drop),
            b'e' => return self.since_mark().map(drop),
            // SETITEM, SETITEMS
            b's' => return self.last(2).and_then(|items| self.set(items)),
            b'u' => return self.since_mark().and_then(|items| self.set(items)),
            // BUILD: attributes are skipped.
            b'b' => {
                self.stack.pop()?;
                return matches!(self.stack.last()?, Value::Dictionary(_)).then_some(());
            }
            // BINGET, LONG_BINGET
            b'h' => self
                .number(1)
                .and_then(|key| self.memo.get(&key).copied())?,
            b'j' => self
                .number(4)
                .and_then(|key| self.memo.get(&key).copied())?,
            // NONE, NEWTRUE, NEWFALSE, EMPTY_LIST
            b'N' => Value::None,
            0x88 | 0x89 | b']' => Value::Other,
            // BINFLOAT
            b'G' => self.slice(8).map(|_| Value::Other)?,
            // BININT, BININT1, BININT2, LONG1
            b'J' => self.signed(4)?,
            b'K' => Value::Number(self.number(1)?.cast_signed()),
            b'M' => Value::Number(self.number(2)?.cast_signed()),
            0x8a => self.number(1).and_then(|length| self.signed(length))?,
            // BINUNICODE, SHORT_BINUNICODE
            b'X' => self.number(4).and_then(|length| self.text(length))?,
            0x8c => self.number(1).and_then(|length| self.text(length))?,
            // EMPTY_TUPLE, TUPLE, TUPLE1, TUPLE2, TUPLE3
            b')' => Value::Tuple(self.keep(Vec::new())),
            b't' => self
                .since_mark()
                .map(|items| Value::Tuple(self.keep(items)))?,
            0x85..=0x87 => {
                let items = self.last(usize::from(instruction - 0x84))?;
                Value::Tuple(self.keep(items))
            }
            // EMPTY_DICT
            b'}' => Value::Dictionary(self.keep(Vec::new())),
            // GLOBAL, STACK_GLOBAL
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.class(module, name)?
            }
            0x93 => match (self.stack.pop()?, self.stack.pop()?) {
                (Value::Text(name), Value::Text(module)) => self.class(module, name)?,
                _ => return None,
            },
            // BINPERSID
            b'Q' => match self.stack.pop()? {
                Value::Tuple(id) => self.storage(id)?,
                _ => return None,
            },
            // REDUCE
            b'R' => match (self.stack.pop()?, self.stack.pop()?) {
                (Value::Tuple(arguments), Value::Class(class)) => {
                    self.construct(class, arguments)?
                }
                _ => return None,
            },
            _ => return None,
        };
        self.stack.push(value);
        Some(())
    }

    /// Returns a class or function that a pickle may use.
    fn class(&mut self, module: &str, name: &'a str) -> Option<Value<'a>> {
        let is_known = match (module, name) {
            ("collections", "OrderedDict")
            | ("torch._utils", "_rebuild_tensor_v2" | "_rebuild_parameter") => true,
            ("torch", name) => storage_type(name).is_some(),
            _ => false,
        };
        if is_known {
            return Some(Value::Class(name));
        }
        self.refuse(if (module, name) == ("argparse", "Namespace") {
            "a fair-esm checkpoint, which is not read: convert-fair-esm.py makes a folder of it that is"
                .to_owned()
        } else {
            format!(
                "has an object of class {}, which is not read: save the model again with transformers' save_pretrained",
                Quoted(&format!("{module}.{name}"))
            )
        })
    }

    fn refuse<T>(&mut self, reason: String) -> Option<T> {
        self.refusal = Some(reason);
        None
    }

    /// Returns the storage of a persistent id: `("storage", class, key, device, length)`.
    fn storage(&mut self, id: usize) -> Option<Value<'a>> {
        let [
            Value::Text("storage"),
            Value::Class(class),
            Value::Text(key),
            _,
            length,
        ] = self.items[id][..]
        else {
            return None;
        };
        let (dtype, length, path) = (storage_type(class)?, size(length)?, format!("data/{key}"));
        let place = match self.records.get(&path) {
            Some((place, _)) => place.clone(),
            // Some versions write no record for an empty storage.
            None if length == 0 => 0..0,
            None => return self.refuse(damaged(format!("no record {}", Quoted(&path)))),
        };
        if length.checked_mul(dtype.bitsize() / 8) == Some(place.len()) {
            return Some(Value::Storage(dtype, place.start, length));
        }
        self.refuse(damaged(format!(
            "record {}: expected {length} values of {dtype}, found {} bytes",
            Quoted(&path),
            place.len()
        )))
    }

    /// Makes an object of a class, or calls a function.
    fn construct(&mut self, class: &str, arguments: usize) -> Option<Value<'a>> {
        match (class, &self.items[arguments][..]) {
            ("OrderedDict", []) => Some(Value::Dictionary(self.keep(Vec::new()))),
            ("_rebuild_parameter", &[tensor @ Value::Tensor(_), ..]) => Some(tensor),
            // storage, offset, shape, strides, requires_grad, hooks, and since 2.0 flags
            (
                "_rebuild_tensor_v2",
                &[
                    Value::Storage(dtype, start, length),
                    offset,
                    Value::Tuple(shape),
                    Value::Tuple(strides),
                    _,
                    _,
                    ref flags @ ..,
                ],
            ) => {
                let no_flags = match *flags {
                    [] | [Value::None] => true,
                    [Value::Dictionary(flags)] => self.items[flags].is_empty(),
                    _ => false,
                };
                // A view with the flag `neg` has the values of the storage with the other sign.
                if !no_flags {
                    return self.refuse(
                        "has a tensor with flags, such as a negative or conjugate view, which is not read: save the \
                         model again with transformers' save_pretrained"
                            .to_owned(),
                    );
                }
                let sizes = |tuple: usize| self.items[tuple].iter().copied().map(size).collect();
                let (shape, strides): (Vec<usize>, Vec<usize>) =
                    Option::zip(sizes(shape), sizes(strides))?;
                if shape.len() != strides.len() || shape.len() > MAX_DIMENSIONS {
                    return None;
                }
                // A tensor with more values than its storage repeats values. No weight does, and a copy of it would take more memory
                // than the file has bytes. The offset of an empty tensor can lie beyond the storage.
                let (offset, mut sizes) = (size(offset)?, shape.iter());
                let values = sizes.try_fold(1, |values: usize, &size| values.checked_mul(size));
                let end = match end(&shape, &strides) {
                    Some(end) if end > 0 => end.checked_add(offset),
                    end => end,
                };
                let fits = |count: Option<usize>| count.is_some_and(|count| count <= length);
                let lies_in_storage = fits(end) && fits(values);
                self.tensors.push(if lies_in_storage {
                    Ok(StoredTensor {
                        file: Arc::clone(self.file),
                        dtype,
                        shape,
                        strides,
                        start: start + offset.min(length) * (dtype.bitsize() / 8),
                    })
                } else {
                    Err(length)
                });
                Some(Value::Tensor(self.tensors.len() - 1))
            }
            _ => None,
        }
    }

    /// Keeps the values of a tuple or dictionary. Returns their index.
    fn keep(&mut self, items: Vec<Value<'a>>) -> usize {
        self.items.push(items);
        self.items.len() - 1
    }

    /// Adds alternating keys and values to the dictionary on top of the stack.
    fn set(&mut self, items: Vec<Value<'a>>) -> Option<()> {
        match *self.stack.last()? {
            Value::Dictionary(index) if items.len().is_multiple_of(2) => {
                self.items[index].extend(items);
                Some(())
            }
            _ => None,
        }
    }

    fn memoize(&mut self, key: usize) -> Option<()> {
        self.memo.insert(key, *self.stack.last()?);
        Some(())
    }

    /// Pops the values since the last mark.
    fn since_mark(&mut self) -> Option<Vec<Value<'a>>> {
        let is_mark = |value: &Value<'_>| matches!(value, Value::Mark);
        let mark = self.stack.iter().rposition(is_mark)?;
        let values = self.stack.split_off(mark + 1);
        self.stack.pop();
        Some(values)
    }

    /// Pops `count` values.
    fn last(&mut self, count: usize) -> Option<Vec<Value<'a>>> {
        let start = self.stack.len().checked_sub(count)?;
        Some(self.stack.split_off(start))
    }

    fn slice(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }

    /// Reads a number of up to eight bytes, little-endian.
    fn number(&mut self, length: usize) -> Option<usize> {
        let bytes = self.slice(length)?.iter().rev();
        Some(bytes.fold(0, |number, &byte| number << 8 | usize::from(byte)))
    }

    /// Reads an integer of up to eight bytes, little-endian, in two's complement.
    fn signed(&mut self, length: usize) -> Option<Value<'a>> {
        let unused = isize::BITS.checked_sub(8 * length as u32)?;
        let number = self.number(length)?.cast_signed();
        let shifted = number.checked_shl(unused).unwrap_or(0);
        Some(Value::Number(shifted.checked_shr(unused).unwrap_or(0)))
    }

    fn text(&mut self, length: usize) -> Option<Value<'a>> {
        let text = str::from_utf8(self.slice(length)?);
        text.ok().map(Value::Text)
    }

    fn line(&mut self) -> Option<&'a str> {
        let length = self.rest.iter().position(|&byte| byte == b'\n')?;
        let line = self.slice(length + 1)?;
        str::from_utf8(&line[..length]).ok()
    }

    /// Returns the tensors of the dictionary on top of the stack.
    fn into_tensors(mut self) -> Result<Vec<(String, StoredTensor)>, String> {
        let Some(Value::Dictionary(index)) = self.stack.pop() else {
            return Err(damaged("expected a dictionary of tensors"));
        };
        let mut tensors = BTreeMap::new();
        for item in self.items[index].chunks(2) {
            let &[Value::Text(name), value] = item else {
                return Err(damaged("expected the names of tensors"));
            };
            let quoted = Quoted(name);
            let tensor = match value {
                Value::Tensor(tensor) => self.tensors[tensor].clone().map_err(|length| {
                    format!("tensor {quoted}: expected to lie in its storage of {length} values")
                }),
                _ => Err(format!("entry {quoted}: expected a tensor")),
            };
            if tensors.insert(name, tensor.map_err(damaged)?).is_some() {
                return Err(damaged(format!("entry {quoted} is there twice")));
            }
        }
        let tensors = tensors.into_iter();
        Ok(tensors
            .map(|(name, tensor)| (name.to_owned(), tensor))
            .collect())
    }
}

/// Returns the type of the values of a class of storages.
fn storage_type(class: &str) -> Option<Dtype> {
    Some(match class {
        "DoubleStorage" => Dtype::F64,
        "FloatStorage" => Dtype::F32,
        "HalfStorage" => Dtype::F16,
        "BFloat16Storage" => Dtype::BF16,
        "LongStorage" => Dtype::I64,
        "IntStorage" => Dtype::I32,
        "ShortStorage" => Dtype::I16,
        "CharStorage" => Dtype::I8,
        "ByteStorage" => Dtype::U8,
        "BoolStorage" => Dtype::BOOL,
        _ => return None,
    })
}

fn size(value: Value<'_>) -> Option<usize> {
    match value {
        Value::Number(number) => usize::try_from(number).ok(),
        _ => None,
    }
}
