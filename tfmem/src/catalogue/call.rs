//! Numbers of the calls on the wire, and how raw registers map to arguments.

use crate::event::Call;

impl Call {
    /// In the order of their wire numbers, which start at 1 (0 means "no call"). Recordings carry the numbers: append
    /// only, never reuse one.
    pub const ALL: [Self; 39] = [
        Self::NewSession,
        Self::LoadSavedModel,
        Self::CloseSession,
        Self::DeleteSession,
        Self::SessionRun,
        Self::DirectSessionNew,
        Self::DirectSessionClose,
        Self::DirectSessionDestroy,
        Self::DirectSessionStep,
        Self::NewGraph,
        Self::DeleteGraph,
        Self::NewContext,
        Self::DeleteContext,
        Self::ClearCaches,
        Self::AddFunction,
        Self::RemoveFunction,
        Self::PoolNew,
        Self::PoolDestroy,
        Self::PoolExtend,
        Self::PoolDeallocateRegions,
        Self::GrpcSessionNew,
        Self::GrpcSessionClose,
        Self::GrpcSessionDestroy,
        Self::RemoteHandle,
        Self::MasterSessionNew,
        Self::MasterSessionClose,
        Self::MasterSessionDestroy,
        Self::WorkerSessionCreate,
        Self::WorkerSessionDelete,
        Self::WorkerGraphNew,
        Self::WorkerGraphGone,
        Self::WorkerStep,
        Self::NewServer,
        Self::ServerStop,
        Self::DeleteServer,
        Self::GrpcServerStop,
        Self::GrpcServerDestroy,
        Self::Reset,
        Self::WorkerCleanup,
    ];

    /// The number on the wire and in attach cookies.
    #[must_use]
    pub const fn number(self) -> u16 {
        // A table look-up by value: `as u16` would silently renumber when a variant is put in between.
        let mut index = 0;
        while index < Self::ALL.len() {
            if Self::ALL[index] as u16 == self as u16 {
                return index as u16 + 1;
            }
            index += 1;
        }
        0
    }

    /// Memory is expected back after this call: the loader looks at the process when it begins and after it ended.
    #[must_use]
    pub const fn wakes(self) -> bool {
        matches!(
            self,
            Self::CloseSession
                | Self::DeleteSession
                | Self::DirectSessionClose
                | Self::DeleteContext
                | Self::ClearCaches
                | Self::GrpcSessionClose
                | Self::WorkerSessionDelete
                | Self::WorkerGraphGone
                | Self::ServerStop
                | Self::DeleteServer
                | Self::GrpcServerStop
        )
    }

    /// Happens with each step of a computation, perhaps thousands of times a second.
    #[must_use]
    pub const fn is_step(self) -> bool {
        matches!(self, Self::SessionRun | Self::DirectSessionStep | Self::WorkerStep)
    }

    /// Called in every step, or only of use beside the allocations.
    #[must_use]
    pub const fn is_frequent(self) -> bool {
        self.is_step()
            || matches!(
                self,
                Self::RemoteHandle | Self::PoolNew | Self::PoolDestroy | Self::PoolExtend | Self::PoolDeallocateRegions
            )
    }

    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// C++ functions that return a `Status` get a hidden first argument, the place for the result
    /// (Itanium C++ ABI 3.1.3.1: a result that is not trivially copyable): `this` is then the second register.
    /// Read in the code of 2.12.0, 2.15.1, 2.18.1 and 2.21.0: all of these take `this` from `rsi`.
    #[must_use]
    pub const fn hidden_result(self) -> bool {
        matches!(
            self,
            Self::DirectSessionClose
                | Self::DirectSessionStep
                | Self::GrpcSessionClose
                | Self::MasterSessionClose
                | Self::WorkerSessionCreate
                | Self::WorkerSessionDelete
                | Self::WorkerGraphNew
                | Self::GrpcServerStop
        )
    }
}

/// The call's arguments as its signature counts them, from the raw registers at its entry.
#[must_use]
pub fn arguments(call: Call, raw: [u64; 6]) -> [u64; 6] {
    if call.hidden_result() {
        let [_, a, b, c, d, e] = raw;
        [a, b, c, d, e, 0]
    } else {
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Body;

    #[test]
    fn numbers_round_trip_and_are_dense() {
        for (index, call) in Call::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(call.number()), index + 1, "{call:?}");
            assert_eq!(Call::from_number(call.number()), Some(call));
        }
        assert_eq!(Call::from_number(0), None);
        assert_eq!(Call::from_number(40), None);
        assert!(usize::from(Body::FIRST_USER_CALL) > Call::ALL.len());
        assert_eq!(Call::from_number(u16::MAX), None);
    }

    #[test]
    fn a_hidden_result_is_no_argument() {
        let raw = [1, 2, 3, 4, 5, 6];
        assert_eq!(arguments(Call::DirectSessionStep, raw), [2, 3, 4, 5, 6, 0]);
        assert_eq!(arguments(Call::DirectSessionNew, raw), raw);
    }
}
