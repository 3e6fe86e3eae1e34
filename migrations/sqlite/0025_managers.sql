-- Who manages a destination from outside: a resource of Kubernetes. What is
-- managed is changed there, and the API refuses to.

create table destination_managers (
    destination_id text primary key references destinations (id),
    tenant_id text not null,
    -- Such as `paceline/shop`: its namespace and its name.
    resource text not null,
    -- Which of all that ever had this name; null: none any more, and the next
    -- one may have the destination.
    uid text
) strict;

create unique index destination_managers_of_resource on destination_managers (tenant_id, resource);
-- A resource looks whether there is one of its name already.
create index destinations_by_name on destinations (tenant_id, name) where deleted_at is null;

-- Goes with the destination, whoever deletes it.
create trigger destinations_forget_manager after update of deleted_at on destinations
when old.deleted_at is null and new.deleted_at is not null
begin
    delete from destination_managers where destination_id = new.id;
end;
