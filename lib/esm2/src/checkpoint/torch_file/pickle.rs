//! Reads the pickle of a state dictionary, a dictionary of tensors, without running it.
//!
//! Knows the instructions of Python's `pickletools` that `torch.save` uses in protocols 2 to 5. Skips everything that
//! no tensor is made of, such as `_metadata` and hooks.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use plmkit_contract::Quoted;
use safetensors::Dtype;

use super::damaged;

/// The pickle of the 15B model has less than a quarter of a MiB.
const MAX_BYTES: usize = 4 << 20;

/// More values than `torch.save` keeps on the stack or in the memo for the 15B model, 20 for each tensor or module.
const MAX_VALUES: usize = 1 << 18;

/// More dimensions than a weight has.
const MAX_DIMENSIONS: usize = 8;

/// The deepest nesting of tuples: the arguments of a tensor contain the tuple of its storage.
const MAX_DEPTH: usize = 4;

/// A tensor as the pickle describes it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TensorEntry {
    pub(super) storage: Rc<Storage>,
    /// Index of the first value in the storage.
    pub(super) offset: usize,
    pub(super) shape: Vec<usize>,
    /// For each dimension, the distance between neighbours, in values.
    pub(super) strides: Vec<usize>,
}

/// An array of values that tensors lie in.
#[derive(Debug, PartialEq)]
pub(super) struct Storage {
    /// The name of its record.
    pub(super) key: Rc<str>,
    pub(super) dtype: Dtype,
    /// The number of values.
    pub(super) length: usize,
}

/// Returns the tensors of a state dictionary by name.
pub(super) fn state_dictionary(pickle: &[u8]) -> Result<BTreeMap<String, TensorEntry>, String> {
    if pickle.len() > MAX_BYTES {
        return Err(damaged(format!(
            "expected a pickle of at most {MAX_BYTES} bytes, found {}",
            pickle.len()
        )));
    }
    let mut machine = Machine {
        rest: pickle,
        ..Machine::default()
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

#[derive(Clone, Debug)]
enum Value {
    /// Not part of any tensor.
    Other,
    None,
    Number(i64),
    Text(Rc<str>),
    Tuple(Rc<Tuple>),
    Class(Class),
    Storage(Rc<Storage>),
    Tensor(Rc<TensorEntry>),
    /// Index in [`Machine::dictionaries`]: a dictionary can change after it was put into another.
    Dictionary(usize),
}

#[derive(Debug)]
struct Tuple {
    values: Vec<Value>,
    depth: usize,
}

/// A class that a pickle may use.
#[derive(Clone, Copy, Debug)]
enum Class {
    OrderedDict,
    Tensor,
    Parameter,
    Storage(Dtype),
}

impl Class {
    fn parse(module: &str, name: &str) -> Result<Self, String> {
        Ok(match (module, name) {
            ("collections", "OrderedDict") => Self::OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2") => Self::Tensor,
            ("torch._utils", "_rebuild_parameter") => Self::Parameter,
            ("torch", "DoubleStorage") => Self::Storage(Dtype::F64),
            ("torch", "FloatStorage") => Self::Storage(Dtype::F32),
            ("torch", "HalfStorage") => Self::Storage(Dtype::F16),
            ("torch", "BFloat16Storage") => Self::Storage(Dtype::BF16),
            ("torch", "LongStorage") => Self::Storage(Dtype::I64),
            ("torch", "IntStorage") => Self::Storage(Dtype::I32),
            ("torch", "ShortStorage") => Self::Storage(Dtype::I16),
            ("torch", "CharStorage") => Self::Storage(Dtype::I8),
            ("torch", "ByteStorage") => Self::Storage(Dtype::U8),
            ("torch", "BoolStorage") => Self::Storage(Dtype::BOOL),
            ("argparse", "Namespace") => {
                return Err(
                    "a fair-esm checkpoint, which is not read: convert-fair-esm.py makes a folder of it that is"
                        .to_owned(),
                );
            }
            _ => {
                return Err(format!(
                    "has an object of class {}, which is not read: save the model again with transformers' \
                     save_pretrained",
                    Quoted(&format!("{module}.{name}"))
                ));
            }
        })
    }
}

/// The stack machine that runs pickles, reduced to dictionaries of tensors.
#[derive(Default)]
struct Machine<'a> {
    /// The instructions that follow.
    rest: &'a [u8],
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: HashMap<usize, Value>,
    dictionaries: Vec<Vec<(Value, Value)>>,
    /// Why a class was refused.
    refusal: Option<String>,
}

impl Machine<'_> {
    /// Executes the next instruction. Returns whether it was the last; `None` for damage or a refused class.
    fn step(&mut self) -> Option<bool> {
        let instruction = self.byte()?;
        if instruction != usize::from(b'.') {
            self.execute(instruction as u8)?;
        }
        (self.stack.len() <= MAX_VALUES).then_some(instruction == usize::from(b'.'))
    }

    /// Executes an instruction; `None` for one that is unknown or does not fit.
    fn execute(&mut self, instruction: u8) -> Option<()> {
        let value = match instruction {
            // PROTO, FRAME
            0x80 => return self.byte().filter(|version| *version <= 5).map(drop),
            0x95 => return self.take::<8>().map(drop),
            // MARK
            b'(' => {
                self.marks.push(self.stack.len());
                return (self.marks.len() <= MAX_VALUES).then_some(());
            }
            // BINPUT, LONG_BINPUT, MEMOIZE
            b'q' => return self.byte().and_then(|key| self.memoize(key)),
            b'r' => return self.u32().and_then(|key| self.memoize(key)),
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
            b'h' => self.byte().and_then(|key| self.memo.get(&key).cloned())?,
            b'j' => self.u32().and_then(|key| self.memo.get(&key).cloned())?,
            // NONE, NEWTRUE, NEWFALSE, EMPTY_LIST
            b'N' => Value::None,
            0x88 | 0x89 | b']' => Value::Other,
            // BINFLOAT
            b'G' => self.take::<8>().map(|_| Value::Other)?,
            // BININT, BININT1, BININT2, LONG1
            b'J' => Value::Number(i32::from_le_bytes(self.take()?).into()),
            b'K' => Value::Number(self.byte()?.cast_signed() as i64),
            b'M' => Value::Number(u16::from_le_bytes(self.take()?).into()),
            0x8a => self.long()?,
            // BINUNICODE, SHORT_BINUNICODE
            b'X' => self.u32().and_then(|length| self.text(length))?,
            0x8c => self.byte().and_then(|length| self.text(length))?,
            // EMPTY_TUPLE, TUPLE, TUPLE1, TUPLE2, TUPLE3
            b')' => tuple(Vec::new())?,
            b't' => tuple(self.since_mark()?)?,
            0x85..=0x87 => tuple(self.last(usize::from(instruction - 0x84))?)?,
            // EMPTY_DICT
            b'}' => self.dictionary(),
            // GLOBAL, STACK_GLOBAL
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.class(&module, &name)?
            }
            0x93 => match (self.stack.pop()?, self.stack.pop()?) {
                (Value::Text(name), Value::Text(module)) => self.class(&module, &name)?,
                _ => return None,
            },
            // BINPERSID
            b'Q' => storage(&self.stack.pop()?)?,
            // REDUCE
            b'R' => {
                let (arguments, class) = (self.stack.pop()?, self.stack.pop()?);
                self.construct(&class, &arguments)?
            }
            _ => return None,
        };
        self.stack.push(value);
        Some(())
    }

    fn class(&mut self, module: &str, name: &str) -> Option<Value> {
        let class = Class::parse(module, name).map_err(|reason| self.refusal = Some(reason));
        class.ok().map(Value::Class)
    }

    /// Makes an object of a class.
    fn construct(&mut self, class: &Value, arguments: &Value) -> Option<Value> {
        let (Value::Class(class), Value::Tuple(arguments)) = (class, arguments) else {
            return None;
        };
        match (class, &arguments.values[..]) {
            (Class::OrderedDict, []) => Some(self.dictionary()),
            (Class::Parameter, [Value::Tensor(tensor), ..]) => Some(Value::Tensor(tensor.clone())),
            // storage, offset, shape, strides, requires_grad, hooks, and since 2.0 flags
            (
                Class::Tensor,
                [
                    Value::Storage(storage),
                    offset,
                    shape,
                    strides,
                    _,
                    _,
                    flags @ ..,
                ],
            ) => {
                // A view with the flag `neg` has the values of the storage with the other sign.
                if !self.is_empty(flags) {
                    self.refusal = Some(
                        "has a tensor with flags, such as a negative or conjugate view, which is not read: save the \
                         model again with transformers' save_pretrained"
                            .to_owned(),
                    );
                    return None;
                }
                let (shape, strides) = (sizes(shape)?, sizes(strides)?);
                (shape.len() == strides.len()).then_some(())?;
                Some(Value::Tensor(Rc::new(TensorEntry {
                    storage: storage.clone(),
                    offset: size(offset)?,
                    shape,
                    strides,
                })))
            }
            _ => None,
        }
    }

    /// Whether the flags of a tensor are absent, `None` or an empty dictionary.
    fn is_empty(&self, flags: &[Value]) -> bool {
        match flags {
            [] | [Value::None] => true,
            [Value::Dictionary(index)] => self.dictionaries[*index].is_empty(),
            _ => false,
        }
    }

    fn dictionary(&mut self) -> Value {
        self.dictionaries.push(Vec::new());
        Value::Dictionary(self.dictionaries.len() - 1)
    }

    /// Adds alternating keys and values to the dictionary on top of the stack.
    fn set(&mut self, items: Vec<Value>) -> Option<()> {
        let Value::Dictionary(index) = *self.stack.last()? else {
            return None;
        };
        let entries = self.dictionaries.get_mut(index)?;
        let mut items = items.into_iter();
        while let Some(key) = items.next() {
            entries.push((key, items.next()?));
        }
        Some(())
    }

    fn memoize(&mut self, key: usize) -> Option<()> {
        let value = self.stack.last()?.clone();
        self.memo.insert(key, value);
        (self.memo.len() <= MAX_VALUES).then_some(())
    }

    /// Pops the values since the last mark.
    fn since_mark(&mut self) -> Option<Vec<Value>> {
        let mark = self.marks.pop()?;
        (mark <= self.stack.len()).then(|| self.stack.split_off(mark))
    }

    /// Pops `count` values.
    fn last(&mut self, count: usize) -> Option<Vec<Value>> {
        let start = self.stack.len().checked_sub(count)?;
        Some(self.stack.split_off(start))
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }

    fn byte(&mut self) -> Option<usize> {
        self.take().map(|[byte]| byte.into())
    }

    fn u32(&mut self) -> Option<usize> {
        Some(u32::from_le_bytes(self.take()?) as usize)
    }

    fn text(&mut self, length: usize) -> Option<Value> {
        let (text, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(Value::Text(str::from_utf8(text).ok()?.into()))
    }

    fn line(&mut self) -> Option<String> {
        let length = self.rest.iter().position(|&byte| byte == b'\n')?;
        let line = str::from_utf8(&self.rest[..length]).ok()?;
        self.rest = &self.rest[length + 1..];
        Some(line.to_owned())
    }

    /// Reads an integer of up to eight bytes, little-endian, in two's complement.
    fn long(&mut self) -> Option<Value> {
        let length = self.byte()?;
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        let sign = bytes
            .last()
            .map_or(0, |&byte| if byte < 128 { 0 } else { 255 });
        let mut wide = [sign; 8];
        wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Value::Number(i64::from_le_bytes(wide)))
    }

    /// Returns the tensors of the dictionary on top of the stack.
    fn into_tensors(mut self) -> Result<BTreeMap<String, TensorEntry>, String> {
        let Some(Value::Dictionary(index)) = self.stack.pop() else {
            return Err(damaged("expected a dictionary of tensors"));
        };
        let mut tensors = BTreeMap::new();
        for (key, value) in self.dictionaries.swap_remove(index) {
            let Value::Text(name) = key else {
                return Err(damaged("expected the names of tensors"));
            };
            let Value::Tensor(tensor) = value else {
                return Err(damaged(format!(
                    "entry {}: expected a tensor",
                    Quoted(&name)
                )));
            };
            // Many entries can share one long name. Copies of it would take more memory than the file has bytes.
            if tensors.contains_key(&*name) {
                return Err(damaged(format!("entry {} is there twice", Quoted(&name))));
            }
            tensors.insert(name.to_string(), (*tensor).clone());
        }
        Ok(tensors)
    }
}

fn tuple(values: Vec<Value>) -> Option<Value> {
    let depth = |value: &Value| match value {
        Value::Tuple(tuple) => tuple.depth,
        _ => 0,
    };
    let depth = 1 + values.iter().map(depth).max().unwrap_or(0);
    (depth <= MAX_DEPTH).then(|| Value::Tuple(Rc::new(Tuple { values, depth })))
}

/// Returns the storage of a persistent id: `("storage", class, key, device, length)`.
fn storage(id: &Value) -> Option<Value> {
    let Value::Tuple(id) = id else {
        return None;
    };
    match &id.values[..] {
        [
            Value::Text(kind),
            Value::Class(Class::Storage(dtype)),
            Value::Text(key),
            _,
            length,
        ] if &**kind == "storage" => Some(Value::Storage(Rc::new(Storage {
            key: key.clone(),
            dtype: *dtype,
            length: size(length)?,
        }))),
        _ => None,
    }
}

fn sizes(value: &Value) -> Option<Vec<usize>> {
    match value {
        Value::Tuple(tuple) if tuple.values.len() <= MAX_DIMENSIONS => {
            tuple.values.iter().map(size).collect()
        }
        _ => None,
    }
}

fn size(value: &Value) -> Option<usize> {
    match value {
        Value::Number(number) => usize::try_from(*number).ok(),
        _ => None,
    }
}
