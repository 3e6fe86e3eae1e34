//! The model and SQLite, step by step: the same calls at the same times of the
//! store's clock have the same answers, and leave the same rows.
//!
//! The contract says what every store must do; this says that the model does
//! what a driver does where the contract leaves room, above all which changes
//! of limits revoke. What is drawn repeats from its seed.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agreement;

use agreement::Pair;

/// Runs `steps` drawn steps on both stores.
async fn agree(seed: u64, steps: usize) {
    let mut pair = Pair::new(seed).await;
    for step in 0..steps {
        pair.step().await;
        if step % 50 == 49 {
            pair.compare_rows().await;
        }
    }
    pair.compare_rows().await;
    assert!(pair.starts() > steps / 20, "too little has started");
}

macro_rules! seeds {
    ($($name:ident $seed:literal)*) => {
        $(
            #[tokio::test(start_paused = true)]
            async fn $name() {
                agree($seed, 1_200).await;
            }
        )*
    };
}

seeds! {
    seed_one 1
    seed_two 2
    seed_three 3
    seed_four 4
    seed_five 5
    seed_six 6
}
