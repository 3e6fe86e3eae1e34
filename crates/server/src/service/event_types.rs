//! The catalogue of event types: everybody reads it, and administrators write it.

use domain::event_types::{
    EventType, ListedEventType, MAX_DESCRIPTION_BYTES, example_problem, name_problem,
    schema_problem,
};
use domain::redaction::Redaction;
use engine::ports::{EventTypeChange, WantedEventTypes};

use super::rules::{self, Lines};
use super::{Service, ServiceError, Tenancy};

impl Service {
    /// A page of the catalogue, by name.
    pub async fn event_types(
        &self,
        wanted: WantedEventTypes,
    ) -> Result<Vec<ListedEventType>, ServiceError> {
        rules::page(wanted.limit)?;
        if let Some(after) = &wanted.after {
            is_name("after", after)?;
        }
        Ok(self.reading.event_types.event_types(&wanted).await?)
    }

    /// All of one type.
    pub async fn event_type(&self, name: &str) -> Result<EventType, ServiceError> {
        is_name("name", name)?;
        Ok(self.reading.event_types.event_type(name).await?)
    }
}

impl Tenancy {
    /// Adds a type to the catalogue.
    pub async fn create_event_type(&self, new: EventType) -> Result<EventType, ServiceError> {
        is_name("name", &new.name)?;
        check(&EventTypeChange {
            description: Some(new.description.clone()),
            schema: Some(new.schema.clone()),
            example: Some(new.example.clone()),
            redact: Some(new.redact.clone()),
            archived: None,
        })?;
        self.event_types.create_event_type(&new).await?;
        Ok(new)
    }

    /// Changes what is named and nothing else.
    pub async fn change_event_type(
        &self,
        name: &str,
        change: &EventTypeChange,
    ) -> Result<EventType, ServiceError> {
        is_name("name", name)?;
        check(change)?;
        Ok(self.event_types.change_event_type(name, change).await?)
    }

    /// Deletes one that has no rules.
    pub async fn delete_event_type(&self, name: &str) -> Result<(), ServiceError> {
        is_name("name", name)?;
        Ok(self.event_types.delete_event_type(name).await?)
    }
}

fn is_name(field: &str, name: &str) -> Result<(), ServiceError> {
    said(field, name_problem(name))
}

fn said(field: &str, problem: Option<&'static str>) -> Result<(), ServiceError> {
    problem.map_or(Ok(()), |problem| Err(ServiceError::invalid(field, problem)))
}

/// Refused by its field.
fn check(change: &EventTypeChange) -> Result<(), ServiceError> {
    if let Some(text) = &change.description {
        rules::text("description", text, MAX_DESCRIPTION_BYTES, Lines::Many)?;
    }
    let schema = change.schema.as_ref().and_then(Option::as_deref);
    said("schema", schema.and_then(schema_problem))?;
    let example = change.example.as_ref().and_then(Option::as_deref);
    said("example", example.and_then(example_problem))?;
    if let Some(pointers) = &change.redact {
        Redaction::parse(pointers).map_err(|refused| {
            let field = (refused.at).map_or("redact".to_owned(), |at| format!("redact[{at}]"));
            ServiceError::invalid(field, refused.problem)
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_named() {
        let text = |text: &str| Some(Some(text.to_owned()));
        let good = EventTypeChange {
            description: Some("Paid,\nat last".to_owned()),
            schema: text(r#"{"type": "object"}"#),
            example: text("1"),
            redact: Some(vec!["/card".to_owned()]),
            archived: Some(true),
        };
        assert_eq!(check(&good), Ok(()));
        assert_eq!(check(&EventTypeChange::default()), Ok(()));
        let long = "x".repeat(MAX_DESCRIPTION_BYTES + 1);
        for (change, field) in [
            (
                EventTypeChange {
                    description: Some(long),
                    ..good.clone()
                },
                "description",
            ),
            (
                EventTypeChange {
                    schema: text("[]"),
                    ..good.clone()
                },
                "schema",
            ),
            (
                EventTypeChange {
                    example: text("{"),
                    ..good.clone()
                },
                "example",
            ),
            (
                EventTypeChange {
                    redact: Some(vec!["/a".to_owned(), "b".to_owned()]),
                    ..good.clone()
                },
                "redact[1]",
            ),
            (
                EventTypeChange {
                    redact: Some(vec![String::new(); 51]),
                    ..good
                },
                "redact",
            ),
        ] {
            let problem = check(&change).unwrap_err();
            assert!(problem.is_of(field), "{field}: {problem}");
        }
    }
}
