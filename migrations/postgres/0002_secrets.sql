-- What signs a destination's requests, and the headers that it adds to them:
-- sealed, under a key that this database does not have.

create table destination_secrets (
    id uuid primary key,
    tenant_id uuid not null,
    destination_id uuid not null references destinations (id),
    kind text not null
        constraint destination_secrets_check_kind
        check (kind in ('hmac', 'ed25519', 'headers')),
    key_id text not null,
    sealed bytea not null,
    -- No secret: a public key, or the names of the headers.
    shown text,
    created_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz
);

create index destination_secrets_of_destination on destination_secrets (destination_id);
-- The headers of a destination are one secret.
create unique index destination_secrets_headers on destination_secrets (destination_id)
    where kind = 'headers';
create index destination_secrets_by_key on destination_secrets (key_id, id);
create index destination_secrets_expiring on destination_secrets (expires_at)
    where expires_at is not null;

-- A destination's secrets go with it, whoever deletes it: nothing of it starts
-- any more.
create function destinations_forget_secrets() returns trigger
    language plpgsql
as $$
begin
    delete from destination_secrets where destination_id = new.id;
    return null;
end;
$$;

create trigger destinations_forget_secrets after update of deleted_at on destinations
    for each row when (old.deleted_at is null and new.deleted_at is not null)
    execute function destinations_forget_secrets();
