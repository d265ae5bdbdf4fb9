module github.com/linkreel/linkreel/libs/clients/go

go 1.26.0
