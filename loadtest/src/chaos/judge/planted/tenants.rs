//! Tenants, and what a transaction took back.

use super::*;

/// Destination 3 is another tenant's.
fn two_tenants(evidence: &mut Evidence) {
    evidence.run.destinations[3].tenant = id(2);
}

#[test]
fn an_event_that_reached_another_tenants_destination_is_found() {
    let sound = broken(two_tenants);
    assert!(sound.is_empty(), "{sound:?}");
    // All three accounts agree, and the client posted it for destination 0.
    let strayed = |evidence: &mut Evidence| {
        two_tenants(evidence);
        for post in &mut evidence.posts {
            if post.number == 7 {
                post.destination = 0;
            }
        }
    };
    assert_eq!(broken(strayed), ["strayed"]);
    let mut evidence = sound_run();
    strayed(&mut evidence);
    let findings = judge(&evidence).findings.join(" ");
    assert!(findings.contains("from another tenant"), "{findings}");
    // Nor does it help that the answer was lost.
    let unanswered = broken(|evidence| {
        strayed(evidence);
        evidence
            .posts
            .retain(|post| post.said != Said::Accepted(id(7)));
    });
    assert_eq!(unanswered, ["strayed"]);
}

fn sound_run() -> Evidence {
    let evidence = sound();
    assert!(judge(&evidence).is_sound());
    evidence
}

#[test]
fn an_event_that_another_tenants_key_posted_is_found() {
    let posted = |said: Said| {
        broken(|evidence| {
            for said in [Said::Posted, said] {
                evidence.posts.push(Post {
                    number: 9_999,
                    destination: 3,
                    body: fingerprint(b"not for you"),
                    said,
                    intruding: true,
                });
            }
        })
    };
    assert!(posted(Said::Refused).is_empty());
    assert_eq!(posted(Said::Accepted(id(9_999))), ["lost", "strayed"]);
    let arrived = broken(|evidence| {
        for post in &mut evidence.posts {
            post.intruding = post.number == 7;
        }
        evidence
            .posts
            .retain(|post| post.said != Said::Accepted(id(7)));
    });
    assert_eq!(arrived, ["strayed"]);
}

#[test]
fn an_event_that_was_rolled_back_and_is_there_is_found() {
    let rolled_back = |evidence: &mut Evidence| {
        for post in &mut evidence.posts {
            if post.said == Said::Accepted(id(7)) {
                post.said = Said::RolledBack(id(7));
            }
        }
    };
    assert_eq!(broken(rolled_back), ["strayed"]);
    let nowhere = broken(|evidence| {
        rolled_back(evidence);
        forget(evidence, 7);
    });
    assert!(nowhere.is_empty(), "{nowhere:?}");
}
