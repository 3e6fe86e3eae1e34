//! Handshakes: looked at, and asked for now.

use domain::destination::DestinationState;
use domain::handshake::Handshake;
use domain::ids::DestinationId;
use engine::ports::HandshakeView;

use super::{Service, ServiceError};

impl Service {
    pub async fn handshake(&self, id: DestinationId) -> Result<HandshakeView, ServiceError> {
        Ok((self.reading.catalog.handshake(self.tenant, id)).await?)
    }

    /// Has its receiver asked now. What comes of it is there when it has answered.
    pub async fn ask_now(&self, id: DestinationId) -> Result<HandshakeView, ServiceError> {
        let view = self.handshake(id).await?;
        if view.handshake == Handshake::None {
            let problem = "is none, so nobody is asked; set it to cloud_events first";
            return Err(ServiceError::invalid("handshake", problem));
        }
        let one = self.reading.catalog.destination(self.tenant, id).await?;
        if one.state == DestinationState::Disabled {
            let problem = "its receiver is not asked while it is disabled: resume it first";
            return Err(ServiceError::Conflict(problem.to_owned()));
        }
        self.catalog.ask_now(self.tenant, id).await?;
        self.handshake(id).await
    }
}
