//! The pickle of a state dictionary: a dictionary of tensors, read and not run.
//!
//! Instructions are those of Python's `pickletools`, as far as `torch.save` uses them for one in protocols 2 to 5.
//! What no tensor is made of (`_metadata`, hooks, flags) is passed over.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use plmkit_contract::Quoted;
use safetensors::Dtype;

use super::error::TorchFileError;

/// The pickle of the 15B model has less than a quarter of a MiB.
const LARGEST: usize = 4 << 20;

/// More values than `torch.save` has waiting or remembers for the 15B model, 20 for each tensor or module.
const MOST_VALUES: usize = 1 << 18;

/// More dimensions than a weight has.
const MOST_DIMENSIONS: usize = 8;

/// The deepest nesting of tuples: the arguments of a tensor have the tuple of its storage in them.
const DEEPEST: usize = 4;

/// What a pickle says of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sketch {
    pub(super) storage: Rc<Storage>,
    /// Values before the tensor's first in its storage.
    pub(super) offset: usize,
    pub(super) shape: Vec<usize>,
    /// For each dimension of the shape, the values from one to the next.
    pub(super) strides: Vec<usize>,
}

/// Values that tensors lie in.
#[derive(Debug, PartialEq)]
pub(super) struct Storage {
    /// The name of its record.
    pub(super) key: Rc<str>,
    pub(super) dtype: Dtype,
    /// The number of its values.
    pub(super) length: usize,
}

/// The tensors of a state dictionary, by name.
pub(super) fn state_dictionary(pickle: &[u8]) -> Result<Vec<(String, Sketch)>, TorchFileError> {
    if pickle.len() > LARGEST {
        return Err(TorchFileError::damaged(format!(
            "expected a pickle of at most {LARGEST} bytes, found {}",
            pickle.len()
        )));
    }
    Machine::new(pickle).run()
}

#[derive(Clone, Debug)]
enum Value {
    /// Of no interest.
    Other,
    Number(i64),
    Text(Rc<str>),
    Tuple(Rc<Tuple>),
    Class(Class),
    Storage(Rc<Storage>),
    Tensor(Rc<Sketch>),
    /// Its place among the machine's: dictionaries change after they were put into others.
    Dictionary(usize),
}

#[derive(Debug)]
struct Tuple {
    values: Vec<Value>,
    depth: usize,
}

/// What a pickle may make objects of.
#[derive(Clone, Copy, Debug)]
enum Class {
    OrderedDict,
    Tensor,
    Parameter,
    Storage(Dtype),
}

impl Class {
    fn parse(module: &str, name: &str) -> Result<Self, TorchFileError> {
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
            ("argparse", "Namespace") => return Err(TorchFileError::FairEsm),
            _ => return Err(TorchFileError::Class(format!("{module}.{name}"))),
        })
    }
}

/// The stack machine that a pickle is a program for.
struct Machine<'a> {
    rest: &'a [u8],
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: HashMap<usize, Value>,
    dictionaries: Vec<Vec<(Value, Value)>>,
}

impl<'a> Machine<'a> {
    fn new(pickle: &'a [u8]) -> Self {
        Self {
            rest: pickle,
            stack: Vec::new(),
            marks: Vec::new(),
            memo: HashMap::new(),
            dictionaries: Vec::new(),
        }
    }

    fn run(mut self) -> Result<Vec<(String, Sketch)>, TorchFileError> {
        let whole = self.rest.len();
        loop {
            let at = whole - self.rest.len();
            let [instruction] = self.take().ok_or_else(|| wrong_at(at))?;
            if instruction == b'.' {
                return self.ended();
            }
            self.step(instruction, at)?;
            if self.stack.len() > MOST_VALUES {
                return Err(wrong_at(at));
            }
        }
    }

    fn ended(mut self) -> Result<Vec<(String, Sketch)>, TorchFileError> {
        let Some(Value::Dictionary(index)) = self.stack.pop() else {
            return Err(TorchFileError::damaged("expected a dictionary of tensors"));
        };
        let entries = std::mem::take(&mut self.dictionaries[index]);
        let mut tensors = BTreeMap::new();
        for entry in entries {
            let (Value::Text(name), Value::Tensor(sketch)) = &entry else {
                return Err(TorchFileError::damaged(match &entry.0 {
                    Value::Text(name) => format!("entry {}: expected a tensor", Quoted(name)),
                    _ => "expected the names of tensors".to_owned(),
                }));
            };
            // Names are shared and copied below: many entries of one long name would be more than the file holds.
            if tensors.insert(name.clone(), sketch.clone()).is_some() {
                return Err(TorchFileError::damaged(format!(
                    "entry {} is there twice",
                    Quoted(name)
                )));
            }
        }
        let tensors = tensors.into_iter();
        Ok(tensors
            .map(|(name, sketch)| (name.to_string(), (*sketch).clone()))
            .collect())
    }

    fn step(&mut self, instruction: u8, at: usize) -> Result<(), TorchFileError> {
        if let Some((module, name)) = self.class(instruction).ok_or_else(|| wrong_at(at))? {
            self.stack.push(Value::Class(Class::parse(&module, &name)?));
            return Ok(());
        }
        self.try_step(instruction).ok_or_else(|| wrong_at(at))
    }

    /// The class that `GLOBAL` or `STACK_GLOBAL` names; no class for any other instruction.
    #[allow(clippy::option_option, reason = "the outer one is damage")]
    fn class(&mut self, instruction: u8) -> Option<Option<(Rc<str>, Rc<str>)>> {
        Some(match instruction {
            b'c' => Some((self.line()?, self.line()?)),
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                match (module, name) {
                    (Value::Text(module), Value::Text(name)) => Some((module, name)),
                    _ => return None,
                }
            }
            _ => None,
        })
    }

    /// Every other instruction; nothing for one that is unknown or does not fit.
    fn try_step(&mut self, instruction: u8) -> Option<()> {
        let value = match instruction {
            // PROTO, FRAME
            0x80 => return self.take::<1>().filter(|[version]| *version <= 5).map(drop),
            0x95 => return self.take::<8>().map(drop),
            // MARK
            b'(' => return self.mark(),
            // BINPUT, LONG_BINPUT, MEMOIZE
            b'q' => return self.take::<1>().and_then(|[key]| self.remember(key.into())),
            b'r' => {
                let key = u32::from_le_bytes(self.take()?) as usize;
                return self.remember(key);
            }
            0x94 => return self.remember(self.memo.len()),
            // APPEND, APPENDS: lists are of no interest.
            b'a' => return self.pop().map(drop),
            b'e' => return self.since_mark().map(drop),
            // SETITEM, SETITEMS
            b's' => {
                let items = self.last(2)?;
                return self.set(items);
            }
            b'u' => {
                let items = self.since_mark()?;
                return self.set(items);
            }
            // BUILD: attributes are of no interest.
            b'b' => {
                self.pop()?;
                return matches!(self.stack.last()?, Value::Dictionary(_)).then_some(());
            }
            // BINGET, LONG_BINGET
            b'h' => {
                let [key] = self.take()?;
                self.memo.get(&usize::from(key))?.clone()
            }
            b'j' => {
                let key = u32::from_le_bytes(self.take()?) as usize;
                self.memo.get(&key)?.clone()
            }
            // NONE, NEWTRUE, NEWFALSE, EMPTY_LIST
            b'N' | 0x88 | 0x89 | b']' => Value::Other,
            // BINFLOAT
            b'G' => self.take::<8>().map(|_| Value::Other)?,
            // BININT, BININT1, BININT2, LONG1
            b'J' => Value::Number(i32::from_le_bytes(self.take()?).into()),
            b'K' => self
                .take()
                .map(|[byte]: [u8; 1]| Value::Number(byte.into()))?,
            b'M' => Value::Number(u16::from_le_bytes(self.take()?).into()),
            0x8a => self.long()?,
            // BINUNICODE, SHORT_BINUNICODE
            b'X' => {
                let length = u32::from_le_bytes(self.take()?) as usize;
                self.text(length)?
            }
            0x8c => {
                let [length] = self.take()?;
                self.text(length.into())?
            }
            // EMPTY_TUPLE, TUPLE, TUPLE1, TUPLE2, TUPLE3
            b')' => tuple(Vec::new())?,
            b't' => tuple(self.since_mark()?)?,
            0x85..=0x87 => tuple(self.last(usize::from(instruction - 0x84))?)?,
            // EMPTY_DICT
            b'}' => self.dictionary(),
            // BINPERSID
            b'Q' => storage(&self.pop()?)?,
            // REDUCE
            b'R' => {
                let (arguments, class) = (self.pop()?, self.pop()?);
                self.construct(&class, &arguments)?
            }
            _ => return None,
        };
        self.stack.push(value);
        Some(())
    }

    /// What a class makes of its arguments.
    fn construct(&mut self, class: &Value, arguments: &Value) -> Option<Value> {
        let (Value::Class(class), Value::Tuple(arguments)) = (class, arguments) else {
            return None;
        };
        match (class, &arguments.values[..]) {
            (Class::OrderedDict, []) => Some(self.dictionary()),
            (Class::Parameter, [Value::Tensor(tensor), ..]) => Some(Value::Tensor(tensor.clone())),
            // storage, offset, shape, strides, requires_grad, hooks, and since 2.0 more that is of no interest
            (Class::Tensor, [Value::Storage(storage), offset, shape, strides, _, _, ..]) => {
                let (shape, strides) = (sizes(shape)?, sizes(strides)?);
                (shape.len() == strides.len()).then_some(())?;
                Some(Value::Tensor(Rc::new(Sketch {
                    storage: storage.clone(),
                    offset: size(offset)?,
                    shape,
                    strides,
                })))
            }
            _ => None,
        }
    }

    fn dictionary(&mut self) -> Value {
        self.dictionaries.push(Vec::new());
        Value::Dictionary(self.dictionaries.len() - 1)
    }

    /// Puts keys and values, in turn, into the dictionary on top of the stack.
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

    fn mark(&mut self) -> Option<()> {
        self.marks.push(self.stack.len());
        (self.marks.len() <= MOST_VALUES).then_some(())
    }

    fn remember(&mut self, key: usize) -> Option<()> {
        let value = self.stack.last()?.clone();
        self.memo.insert(key, value);
        (self.memo.len() <= MOST_VALUES).then_some(())
    }

    fn pop(&mut self) -> Option<Value> {
        self.stack.pop()
    }

    /// The values since the last mark.
    fn since_mark(&mut self) -> Option<Vec<Value>> {
        let mark = self.marks.pop()?;
        (mark <= self.stack.len()).then(|| self.stack.split_off(mark))
    }

    fn last(&mut self, count: usize) -> Option<Vec<Value>> {
        let start = self.stack.len().checked_sub(count)?;
        Some(self.stack.split_off(start))
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }

    fn text(&mut self, length: usize) -> Option<Value> {
        let (text, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(Value::Text(str::from_utf8(text).ok()?.into()))
    }

    fn line(&mut self) -> Option<Rc<str>> {
        let length = self.rest.iter().position(|&byte| byte == b'\n')?;
        let line = str::from_utf8(&self.rest[..length]).ok()?;
        self.rest = &self.rest[length + 1..];
        Some(line.into())
    }

    /// An integer of up to eight bytes, little-endian, in two's complement.
    fn long(&mut self) -> Option<Value> {
        let [length] = self.take()?;
        let (bytes, rest) = self.rest.split_at_checked(length.into())?;
        self.rest = rest;
        let sign = bytes
            .last()
            .map_or(0, |&byte| if byte < 128 { 0 } else { 255 });
        let mut wide = [sign; 8];
        wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(Value::Number(i64::from_le_bytes(wide)))
    }
}

fn wrong_at(at: usize) -> TorchFileError {
    TorchFileError::damaged(format!(
        "data.pkl is not that of a dictionary of tensors from byte {at} on"
    ))
}

fn tuple(values: Vec<Value>) -> Option<Value> {
    let depth = |value: &Value| match value {
        Value::Tuple(tuple) => tuple.depth,
        _ => 0,
    };
    let depth = 1 + values.iter().map(depth).max().unwrap_or(0);
    (depth <= DEEPEST).then(|| Value::Tuple(Rc::new(Tuple { values, depth })))
}

/// The storage that a persistent id stands for: `("storage", class, key, device, length)`.
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
        Value::Tuple(tuple) if tuple.values.len() <= MOST_DIMENSIONS => {
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
