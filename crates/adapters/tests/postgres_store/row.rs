//! Structs of `row!`: by name, and where the column stands.

use crate::database::Database;

adapters::row! {
    #[derive(Debug, PartialEq)]
    struct Part {
        c: Option<i64>,
        d: i64,
    }
}

adapters::row! {
    #[derive(Debug, PartialEq)]
    struct Whole {
        a: i64,
        b: String,
        ..part: Part,
    }
}

async fn read(database: &Database, statement: &'static str) -> Result<Whole, sqlx::Error> {
    let query = sqlx::query_as(statement);
    query.fetch_one(&mut database.user().await).await
}

fn whole() -> Whole {
    Whole {
        a: 1,
        b: "two".to_owned(),
        part: Part { c: None, d: 4 },
    }
}

#[tokio::test]
async fn the_order_of_the_columns_is_free() {
    let database = Database::create().await;
    for statement in [
        "select 1::bigint as a, 'two' as b, null::bigint as c, 4::bigint as d",
        "select 4::bigint as d, null::bigint as c, 'two' as b, 1::bigint as a",
        "select null::bigint as c, 1::bigint as a, 4::bigint as d, 'two' as b",
        "select 0 as x, 1::bigint as a, 0 as y, 'two' as b, null::bigint as c, 4::bigint as d",
    ] {
        let found = read(&database, statement).await.unwrap();
        assert_eq!(found, whole(), "{statement}");
    }
}

/// By its name alone a column that is there twice is the last of the two.
#[tokio::test]
async fn a_column_is_read_where_it_stands() {
    let database = Database::create().await;
    let statement = "select 1::bigint as a, 'two' as b, null::bigint as c, 4::bigint as d,
        9::bigint as a, 'nine' as b, 9::bigint as c, 9::bigint as d";
    let found = read(&database, statement).await.unwrap();
    assert_eq!(found, whole());
}

#[tokio::test]
async fn an_error_names_the_column() {
    let database = Database::create().await;
    let another_type = "select 1::bigint as a, 2::bigint as b, null::bigint as c, 4::bigint as d";
    let error = read(&database, another_type).await.unwrap_err().to_string();
    assert!(error.contains("\"b\""), "{error}");
    let missing = "select 1::bigint as a, 'two' as b, 4::bigint as d";
    let error = read(&database, missing).await.unwrap_err().to_string();
    assert!(error.contains("name: c"), "{error}");
}
