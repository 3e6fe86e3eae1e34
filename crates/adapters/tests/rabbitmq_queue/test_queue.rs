//! A queue of a test's own on a broker, and a plain client to meddle with it.

use adapters::rabbitmq::{QueueKind, RabbitQueue};
use lapin::options::QueueDeleteOptions;
use lapin::{Channel, Connection, ConnectionProperties};
use rand::TryRng;
use rand::rngs::SysRng;

/// One delivery queue under a name that nobody else uses.
pub(crate) struct TestQueue {
    pub(crate) url: String,
    pub(crate) name: String,
    pub(crate) channel: Channel,
    connection: Connection,
}

impl TestQueue {
    /// On the broker that all tests share.
    pub(crate) async fn shared() -> Self {
        let url = std::env::var("PACELINE_TEST_AMQP_URL")
            .expect("PACELINE_TEST_AMQP_URL names the broker to test on");
        Self::at(url).await
    }

    pub(crate) async fn at(url: String) -> Self {
        let mut random = [0; 8];
        SysRng.try_fill_bytes(&mut random).unwrap();
        let name = format!("test-{:016x}", u64::from_le_bytes(random));
        let properties = ConnectionProperties::default();
        let connection = Connection::connect(&url, properties).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        Self {
            url,
            name,
            channel,
            connection,
        }
    }

    pub(crate) async fn connect(&self) -> RabbitQueue {
        self.connect_as(QueueKind::Quorum).await
    }

    pub(crate) async fn connect_as(&self, kind: QueueKind) -> RabbitQueue {
        RabbitQueue::connect(&self.url, &self.name, kind)
            .await
            .unwrap()
    }

    /// Leaves nothing on the broker. Called last: whoever is still connected
    /// would declare the queue again.
    pub(crate) async fn delete(self) {
        for name in [self.name.clone(), format!("{}.dead", self.name)] {
            let options = QueueDeleteOptions::default();
            let deleted = self.channel.queue_delete(name.as_str().into(), options);
            deleted.await.unwrap();
        }
        self.connection.close(200, "bye".into()).await.unwrap();
    }
}
