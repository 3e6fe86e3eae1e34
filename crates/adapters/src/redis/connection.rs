//! One multiplexed connection that comes back by itself, and its errors.
//!
//! Owns connecting, timeouts and redaction. Every call ends within a bounded
//! time; a call that failed may have run. Refuses to print a password: errors
//! and `Debug` name the server by its address only.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use ::redis::aio::{ConnectionManager, ConnectionManagerConfig};
use ::redis::io::tcp::TcpSettings;
use ::redis::{
    Client, Cmd, ConnectionInfo, ErrorKind, FromRedisValue, IntoConnectionInfo, RedisError,
    RedisResult, ScriptInvocation, ServerErrorKind,
};
use engine::ports::ScheduleError;

use super::subscriber::Subscriber;
use super::timeouts::{CONNECTION_TIMEOUT, RESPONSE_TIMEOUT};

/// The way to one server.
pub(super) struct Connection {
    client: Client,
    /// Where the server is, without credentials.
    address: String,
    current: Mutex<Current>,
}

/// The connection in use, numbered so that of many calls that see it hang only
/// the first replaces it.
#[derive(Clone)]
struct Current {
    number: u64,
    manager: ConnectionManager,
}

impl Connection {
    /// Reads the URL; dials with the first command.
    pub(super) fn new(url: &str) -> Result<Self, ScheduleError> {
        let unreadable = |error: RedisError| {
            // The detail may quote the URL; the category does not.
            ScheduleError(format!("not a redis url: {}", error.category()))
        };
        let info: ConnectionInfo = url.into_connection_info().map_err(unreadable)?;
        let address = info.addr().to_string();
        // Commands of several callers share the connection: none waits until
        // the answer to another's is acknowledged.
        let info = info.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let client = Client::open(info).map_err(unreadable)?;
        let manager = manager(&client).map_err(unreadable)?;
        Ok(Self {
            client,
            address,
            current: Mutex::new(Current { number: 0, manager }),
        })
    }

    /// Runs a script, loading it where the server does not know it.
    pub(super) async fn script<T: FromRedisValue>(
        &self,
        invocation: &ScriptInvocation<'_>,
    ) -> Result<T, ScheduleError> {
        let mut current = self.current();
        let result = invocation.invoke_async(&mut current.manager).await;
        self.checked(current.number, result)
    }

    /// Runs one command.
    pub(super) async fn command<T: FromRedisValue>(
        &self,
        command: &Cmd,
    ) -> Result<T, ScheduleError> {
        let result = self.raw(command).await;
        result.map_err(|error| self.failure(&error))
    }

    /// A connection of its own that listens on these channels from now on.
    pub(super) fn subscriber(&self, channels: Vec<String>) -> Subscriber {
        Subscriber::start(self.client.clone(), self.address.clone(), channels)
    }

    /// Warns if the server may evict jobs, or cannot be reached yet. Fails if
    /// the server answers but refuses us: waiting would not cure that.
    pub(super) async fn check(&self) -> Result<(), ScheduleError> {
        let address = self.address.as_str();
        match self.raw::<()>(&::redis::cmd("PING")).await {
            Ok(()) => {}
            Err(error) if refuses_us(&error) => return Err(self.failure(&error)),
            Err(error) => {
                tracing::warn!(address, %error, "redis is away, will connect when it is back");
                return Ok(());
            }
        }
        let mut policy = ::redis::cmd("CONFIG");
        policy.arg("GET").arg("maxmemory-policy");
        // Hosted servers often forbid CONFIG: then there is nothing to say.
        if let Ok((_, policy)) = self.raw::<(String, String)>(&policy).await
            && policy != "noeviction"
        {
            tracing::warn!(
                address,
                policy,
                "redis may evict jobs when its memory is full, set maxmemory-policy to noeviction"
            );
        }
        Ok(())
    }

    async fn raw<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let mut current = self.current();
        let result = command.query_async(&mut current.manager).await;
        self.replace_if_hung(current.number, &result);
        result
    }

    fn current(&self) -> Current {
        self.current
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn checked<T>(&self, number: u64, result: RedisResult<T>) -> Result<T, ScheduleError> {
        self.replace_if_hung(number, &result);
        result.map_err(|error| self.failure(&error))
    }

    /// The manager reconnects after a connection that broke, not after one
    /// that hangs: a server that vanished without a word would be waited for
    /// until the kernel gives up, a quarter of an hour later.
    fn replace_if_hung<T>(&self, number: u64, result: &RedisResult<T>) {
        if !matches!(result, Err(error) if error.is_timeout()) {
            return;
        }
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.number == number
            && let Ok(manager) = manager(&self.client)
        {
            *current = Current {
                number: number + 1,
                manager,
            };
        }
    }

    fn failure(&self, error: &RedisError) -> ScheduleError {
        ScheduleError(format!("redis at {}: {error}", self.address))
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

/// A connection that is dialled when it is first used, and again after it
/// broke.
fn manager(client: &Client) -> RedisResult<ConnectionManager> {
    let config = ConnectionManagerConfig::new()
        .set_response_timeout(Some(RESPONSE_TIMEOUT))
        .set_connection_timeout(Some(CONNECTION_TIMEOUT))
        // A failed dial fails the calls that wait for it, and the next call
        // dials again: the engine's loops have a backoff of their own.
        .set_number_of_retries(0);
    ConnectionManager::new_lazy_with_config(client.clone(), config)
}

/// A wrong password or a missing right, as opposed to an absence.
fn refuses_us(error: &RedisError) -> bool {
    matches!(
        error.kind(),
        ErrorKind::AuthenticationFailed
            | ErrorKind::InvalidClientConfig
            | ErrorKind::Server(ServerErrorKind::NoPerm)
    ) || error
        .code()
        .is_some_and(|code| matches!(code, "NOAUTH" | "WRONGPASS"))
}
