//! Matrix products of oneDNN, for plmkit's CPU kernels: it multiplies tiles of bfloat16 (AMX), and they do not.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use plmkit_cpu::Rows;
use tch::{Kind, Tensor};

use crate::EsmError;
use crate::threads::set_libtorch_threads;

/// The first error of a product since the last batch.
pub(crate) type Failure = Arc<Mutex<Option<EsmError>>>;

/// Multiplies by weights that libtorch keeps.
#[derive(Debug)]
pub(crate) struct Product {
    /// `(out, in)` bfloat16. A tensor cannot be borrowed by several threads.
    weight: Mutex<Tensor>,
    failure: Failure,
}

impl Product {
    /// Multiplies by `weight`, `(out, in)`, rounded to bfloat16.
    pub(crate) fn new(weight: &Tensor, failure: &Failure) -> Result<Self, EsmError> {
        Ok(Self {
            weight: Mutex::new(weight.f_to_kind(Kind::BFloat16)?),
            failure: Arc::clone(failure),
        })
    }

    fn try_multiply(&self, x: Rows<'_>, out: &mut [f32], kind: Kind) -> Result<(), EsmError> {
        // plmkit's threads share the rows.
        set_libtorch_threads(NonZeroUsize::MIN);
        let weight = self.weight.lock().unwrap_or_else(PoisonError::into_inner);
        let weight = weight.shallow_clone();
        let x = Tensor::f_from_slice(x.values())?.f_view([-1, x.width() as i64])?;
        let x = x.f_to_kind(kind)?;
        let products = x.f_linear(&weight.f_to_kind(kind)?, None::<Tensor>)?;
        let products = products.f_to_kind(Kind::Float)?;
        Ok(products.f_copy_data(out, out.len())?)
    }
}

impl plmkit_cpu::Product for Product {
    fn multiply(&self, x: Rows<'_>, out: &mut [f32], in_f32: bool) {
        let kind = if in_f32 { Kind::Float } else { Kind::BFloat16 };
        if let Err(error) = self.try_multiply(x, out, kind) {
            let mut failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
            failure.get_or_insert(error);
        }
    }
}
